#!lua flags=allow-oom
-- KEYS gateways
-- ARGV gateway trouble ttl_ms
-- include: clock
local gateway, trouble, ttl_ms = unpack(ARGV)
redis.call('HSET', KEYS[1], gateway, digits(now_ms()) .. ' ' .. trouble)
redis.call('PEXPIRE', KEYS[1], ttl_ms)
return 'OK'
