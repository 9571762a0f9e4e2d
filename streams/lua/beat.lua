#!lua flags=allow-oom
-- KEYS gateway reply memory
-- ARGV position ttl_ms key_bytes
-- allow-oom: a full Redis must not make a living gateway look dead
local gateway, reply_stream, memory = unpack(KEYS)
local position, ttl_ms, key_bytes = unpack(ARGV)
redis.pcall('HSET', memory, 'most', key_bytes)
local is_new = position == '0-0'
local was_there = redis.call('EXISTS', gateway)
local found = redis.pcall('XRANGE', reply_stream, position, '+', 'COUNT', 2)
if found.err then
  redis.call('SET', gateway, position, 'PX', ttl_ms)
  return {found.err, 0, was_there}
end
-- trimming leaves it there: without it this is not the stream that was read, and what was read of
-- this one is not known
local is_known = is_new or found[1] and found[1][1] == position
redis.call('SET', gateway, is_known and position or '0-0', 'PX', ttl_ms)
local already_read = (is_new or not is_known) and 0 or 1
return {is_known and 'OK' or 'LOST', #found > already_read and 1 or 0, was_there}
