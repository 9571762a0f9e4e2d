#!lua flags=allow-oom
-- KEYS lease
-- ARGV token is_inside
local lease, token, is_inside = KEYS[1], ARGV[1], ARGV[2] == '1'
if redis.call('HGET', lease, 't') ~= token then return 'FENCED' end
if is_inside then
  redis.call('HSET', lease, 'i', '1')
else
  redis.call('HDEL', lease, 'i')
end
return 'OK'
