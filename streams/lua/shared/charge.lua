-- what Redis holds for a call is charged to the call's API key (streams/key_memory_scripts.py)
local function has_share(memory, key, size)
  local c = redis.pcall('HMGET', memory, 'most', 'key:' .. key)
  local charged = tonumber(c[2] or '')
  -- who has nothing may have one call, however large
  return charged and charged + size > (tonumber(c[1] or '') or math.huge)
end
local function take(memory, call, key, size)
  local had = redis.pcall('HGET', memory, call)
  had = type(had) == 'string' and tonumber(string.match(had, '^%d+')) or 0
  redis.pcall('HSET', memory, call, string.format('%.0f ', had + size) .. key)
  redis.pcall('HINCRBY', memory, 'key:' .. key, size)
end
