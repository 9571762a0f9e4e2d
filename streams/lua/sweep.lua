#!lua flags=allow-oom
-- KEYS memory
-- ARGV cursor body_prefix
-- include: give_back
local memory, cursor, body_prefix = KEYS[1], ARGV[1], ARGV[2]
local found = redis.pcall('HSCAN', memory, cursor, 'COUNT', 200)
if found.err then
  redis.call('UNLINK', memory)
  return '0'
end
for i = 1, #found[2], 2 do
  local call = found[2][i]
  -- a sum may have a name as long as a call's
  if #call == 36 and string.sub(call, 1, 4) ~= 'key:'
    and redis.call('EXISTS', body_prefix .. call) == 0 then
    give_back(memory, call)
  end
end
return found[1]
