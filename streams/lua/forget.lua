-- KEYS stream
-- ARGV group idle_ms
-- include: by_name
local stream, group, idle_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
local forgotten = 0
for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local c = by_name(fields)
  if c.pending == 0 and c.idle > idle_ms then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, c.name)
    forgotten = forgotten + 1
  end
end
return forgotten
