#!lua flags=allow-oom
-- KEYS audit committed trimmed
-- ARGV is_published entry..
-- include: by_name clock
local audit, committed, trimmed_key = unpack(KEYS)
local is_published = ARGV[1] == '1'
if ARGV[2] then redis.call('XACK', audit, 'audit', unpack(ARGV, 2)) end

local function below()
  local p = redis.call('XPENDING', audit, 'audit')
  if p[1] > 0 then return p[2] end
  for _, fields in ipairs(redis.call('XINFO', 'GROUPS', audit)) do
    local group = by_name(fields)
    if group.name == 'audit' then
      local ms, n = string.match(group['last-delivered-id'], '(%d+)-(%d+)')
      return ms .. '-' .. digits(tonumber(n) + 1)
    end
  end
  return '0-0'
end

local id = below()
if is_published then
  redis.call('SET', committed, id, 'PX', 3600000)
  redis.call('PUBLISH', committed, id)
end
if redis.call('EXISTS', trimmed_key) == 0 then
  local stream = by_name(redis.call('XINFO', 'STREAM', audit))
  redis.call('SET', trimmed_key, stream['entries-added'] - stream.length)
end
local trimmed = redis.call('XTRIM', audit, 'MINID', id)
if trimmed > 0 then redis.call('INCRBY', trimmed_key, trimmed) end
return trimmed
