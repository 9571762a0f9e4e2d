#!lua
-- KEYS account
-- ARGV past
-- All that an account holds, without windows that began before `past` (ms), and without what calls hold whose end never came.
-- include: clock
local now = now_ms()
local held = {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local field, value = all[i], all[i + 1]
  local window = tonumber(string.match(field, '^%a(%d+)[tu]$') or '')
  local expires = string.sub(field, 1, 1) == 'l' and tonumber(string.match(value, '^%d+ %d+ (%d+)') or '0')
  local is_old = window and (window < tonumber(ARGV[1]) or string.sub(field, 1, 1) == 'm' and window < now - 7200000)
  if is_old or expires and expires < now then
    redis.call('HDEL', KEYS[1], field)
  else
    held[#held + 1] = field
    held[#held + 1] = value
  end
end
return held
