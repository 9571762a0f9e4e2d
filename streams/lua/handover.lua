#!lua flags=allow-oom
-- KEYS dispatch lease
-- ARGV token call_id within_ms
-- include: clock
local dispatch, lease = KEYS[1], KEYS[2]
local token, call_id, within_ms = unpack(ARGV)
if redis.call('HGET', lease, 't') ~= token then return 'FENCED' end
local entry = redis.call('HGET', lease, 'e')
local due = digits(now_ms() + tonumber(within_ms))
local fresh = redis.call('XADD', dispatch, '*', 'c', call_id, 'd', due)
redis.call('XACK', dispatch, 'policy', entry)
redis.call('XDEL', dispatch, entry)
redis.call('HSET', lease, 't', '', 'e', fresh, 'kn', -1)
redis.call('HDEL', lease, 'i')
return 'OK'
