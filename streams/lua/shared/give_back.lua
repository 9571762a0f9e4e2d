local function give_back(memory, call)
  local size, key = string.match(redis.call('HGET', memory, call) or '', '^(%d+) (.*)$')
  redis.call('HDEL', memory, call)
  if key and redis.call('HINCRBY', memory, 'key:' .. key, -size) <= 0 then
    redis.call('HDEL', memory, 'key:' .. key)
  end
end
