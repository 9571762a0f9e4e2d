#!lua flags=allow-oom
-- KEYS facts stream
-- ARGV channel field value
local facts, stream = KEYS[1], KEYS[2]
local channel, field, value = unpack(ARGV)
local left = redis.call('PTTL', stream)
-- the first value of a field stays
local written = left == -2 and 0 or redis.call('HSETNX', facts, field, value)
redis.call('PUBLISH', channel, field)
if left > 0 then redis.call('PEXPIRE', facts, left) end
return written
