#!lua flags=allow-oom
-- KEYS audit
-- ARGV consumer max_blobs max_bytes idle_ms ('' to leave what others hold)
-- a few entries at a time, because each may be megabytes
-- include: by_name
local audit = KEYS[1]
local consumer, max_blobs, max_bytes, idle_ms = unpack(ARGV)
max_blobs, max_bytes = tonumber(max_blobs), tonumber(max_bytes)

local out, count, size = {}, 0, 0
-- nothing of a writer that still reads: it may be storing large bodies for long, and they would be
-- stored twice. Nor of this one itself
local dead = {}
for _, fields in ipairs(idle_ms ~= '' and redis.call('XINFO', 'CONSUMERS', audit, 'audit') or {}) do
  local c = by_name(fields)
  if c.name ~= consumer and c.pending > 0 and c.idle >= tonumber(idle_ms) then
    dead[#dead + 1] = c.name
  end
end
while count < max_blobs and size < max_bytes do
  local entries
  if #dead > 0 then
    local ids = {}
    local writer = dead[#dead]
    local pending = redis.call('XPENDING', audit, 'audit', 'IDLE', idle_ms, '-', '+', 10, writer)
    for _, entry in ipairs(pending) do ids[#ids + 1] = entry[1] end
    if #ids < 10 then dead[#dead] = nil end
    entries = {}
    if #ids > 0 then
      entries = redis.call('XCLAIM', audit, 'audit', consumer, idle_ms, unpack(ids))
    end
  else
    local answer = redis.call('XREADGROUP', 'GROUP', 'audit', consumer, 'COUNT', 10,
      'STREAMS', audit, '>')
    if not answer then break end
    entries = answer[1][2]
  end
  for _, entry in ipairs(entries) do
    for i = 2, #entry[2], 2 do
      count = count + 1
      size = size + #entry[2][i]
    end
    out[#out + 1] = entry
  end
end
return out
