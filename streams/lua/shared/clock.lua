-- Redis' own time in ms: processes compare with each other what one of them wrote. Also its
-- microseconds, for what is to be done now and then
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000), t[2]
end
-- a large number as text: Lua by itself would write it with an exponent
local function digits(number) return string.format('%.0f', number) end
