#!lua flags=allow-oom
-- KEYS lease
-- ARGV token
local lease, token = KEYS[1], ARGV[1]
if redis.call('HGET', lease, 't') ~= token then return 'FENCED' end
redis.call('HSET', lease, 'k', 0, 'kn', -1)
redis.call('HDEL', lease, 'i')
return 'OK'
