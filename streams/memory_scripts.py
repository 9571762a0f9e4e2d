"""The Lua scripts that charge what Redis holds for a call to the call's API key, until it is free
again.

`memory` is a hash of a shard. It has the bytes of each call that is not stored yet, with its key's
id (`CALL`), their sum by key (`key:ID`), and how much one key may have (`most`, which gateways
write with their heartbeats). A charge lives as long as the request body of its call, which an audit
writer deletes when the call's end is stored. Whatever a crash leaves, `SWEEP` finds: a charge
without a body is given back.
"""

CALL_BYTES = 4096
"""What a call without a body takes: its stream, its lease, its records until they are stored."""

TAKE = """
local function has_share(memory, key, size)
  local c = redis.pcall('HMGET', memory, 'most', 'key:' .. key)
  local own = tonumber(c[2] or '')
  -- who has nothing may have one call, however large
  return own and own + size > (tonumber(c[1] or '') or math.huge)
end
local function take(memory, call, key, size)
  local had = redis.pcall('HGET', memory, call)
  had = type(had) == 'string' and tonumber(string.match(had, '^%d+')) or 0
  redis.pcall('HSET', memory, call, string.format('%.0f ', had + size) .. key)
  redis.pcall('HINCRBY', memory, 'key:' .. key, size)
end
"""
_GIVE_BACK = """
local function give_back(memory, call)
  local size, key = string.match(redis.call('HGET', memory, call) or '', '^(%d+) (.*)$')
  redis.call('HDEL', memory, call)
  if key and redis.call('HINCRBY', memory, 'key:' .. key, -size) <= 0
    then redis.call('HDEL', memory, 'key:' .. key) end
end
"""

CHARGE = f"""
-- KEYS memory; ARGV call_id key bytes
{TAKE}
if has_share(KEYS[1], ARGV[2], tonumber(ARGV[3])) then return 'KEY' end
take(KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]))
return 'OK'
"""
"""Charge more to an open call, unless its key has its share."""

FREE = f"""#!lua flags=allow-oom
-- KEYS memory body..; ARGV call_id..
{_GIVE_BACK}
for i, call in ipairs(ARGV) do
  redis.call('UNLINK', KEYS[i + 1])
  pcall(give_back, KEYS[1], call)
end
return 'OK'
"""
"""Delete the request bodies of stored calls, and give back what these were charged."""

SWEEP = f"""#!lua flags=allow-oom
-- KEYS memory; ARGV cursor body_prefix
{_GIVE_BACK}
local found = redis.pcall('HSCAN', KEYS[1], ARGV[1], 'COUNT', 200)
if found.err then
  redis.call('UNLINK', KEYS[1])
  return '0'
end
for i = 1, #found[2], 2 do
  local call = found[2][i]
  -- a sum may have a name as long as a call's
  if #call == 36 and string.sub(call, 1, 4) ~= 'key:' and redis.call('EXISTS', ARGV[2] .. call) == 0
    then give_back(KEYS[1], call) end
end
return found[1]
"""
"""Give back charges of calls that have no body any more, some at a time; returns where to go on."""

ALL = (CHARGE, FREE, SWEEP)
