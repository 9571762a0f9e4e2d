#!lua flags=allow-oom
-- KEYS dispatch, then of each call: lease stream body facts
-- ARGV consumer is_takeover call_ttl_ms is_late lease_ms patience_ms
--      number of pins, pins (policy@revision | !key | =set)..
--      then of each call: token entry due
-- allow-oom: a call whose worker died must find another also while Redis is full, or it would never
-- end
-- include: clock rows
local dispatch = KEYS[1]
local consumer, is_takeover, call_ttl_ms, is_late, lease_ms, patience_ms = unpack(ARGV, 1, 6)
is_takeover, is_late, patience_ms = is_takeover == '1', is_late == '1', tonumber(patience_ms)
local fixed = 7 + ARGV[7]
local pins = {}
local has_shares = false
for i = 8, fixed do
  pins[ARGV[i]] = true
  has_shares = has_shares or string.sub(ARGV[i], 1, 1) == '!'
end
local now = now_ms()

-- of START the sixth is the API key, the fifteenth the policy sets under which the call may begin;
-- what follows may be bytes, which Lua cannot unpack. A START that cannot be read is taken, and
-- ended
local function start_of(entries)
  local blob = entries[1][2][2]
  local found = {pcall(cmsgpack.unpack_limit, blob, 15, string.byte(blob) == 0xdc and 3 or 1)}
  return found[1] and found[8], found[1] and found[17]
end
-- a START that cannot be read names none, and is taken
local function may_begin(sets)
  if type(sets) ~= 'table' or #sets == 0 then return true end
  for _, set in ipairs(sets) do
    if pins['=' .. set] then return true end
  end
  return false
end
-- any worker may take the entry at once, so that one that can soon does
local function leave(entry)
  redis.call('XCLAIM', dispatch, 'policy', consumer, 0, entry, 'IDLE', lease_ms, 'JUSTID')
end
-- anew, behind what waits: who has waited longest gets it next. Workers look for what was left in
-- step, and the same is always first
local function pass_on(entry, due)
  local found = redis.call('XRANGE', dispatch, entry, entry)[1]
  local times = found and tonumber(found[2][6] or 0) or MAX_PASSED_ON
  if times >= MAX_PASSED_ON then return leave(entry) end
  redis.call('XADD', dispatch, '*', 'c', found[2][2], 'd', due, 'x', times + 1)
  redis.call('XACK', dispatch, 'policy', entry)
  redis.call('XDEL', dispatch, entry)
end
local function first_entries(stream) return redis.call('XRANGE', stream, '-', '+', 'COUNT', 64) end

local function claim(lease, stream, body_key, facts, token, entry, due)
  local pending = redis.call('XPENDING', dispatch, 'policy', entry, entry, 1)
  if not pending[1] or pending[1][2] ~= consumer then return {'LOST'} end
  local c = redis.call('HMGET', lease, 't', 'n', 'h', 's', 'p', 'r', 'k', 'kn', 'o', 'i', 'w')
  local owner, number, digest, seq, policy, revision = unpack(c, 1, 6)
  local takeovers, taken_at, waits_since, died_in_it, written = unpack(c, 7)
  -- also where Redis lost the call's numbers before its end was written
  if owner == 'closed' then return {'CLOSED'} end
  local is_fresh, entries = not number
  if is_fresh then
    entries = first_entries(stream)
    if #entries == 0 then return {'CLOSED'} end
    if not is_late then
      if now > tonumber(due) then return {'EXPIRED'} end
      local key, sets = start_of(entries)
      if not may_begin(sets) then
        pass_on(entry, due)
        return {'SET', table.concat(sets, ' ')}
      end
      if has_shares and pins['!' .. tostring(key)] then
        leave(entry)
        return {'SHARE'}
      end
    end
    redis.call('HSET', lease, 't', token, 'n', 0, 'h', '', 's', 0, 'e', entry, 'k', 0, 'kn', -1)
  else
    if owner ~= '' and not is_takeover then return {'OWNED'} end
    local is_able
    if revision then
      -- a refused call has an empty revision: any worker can give the same answer again
      is_able = revision == '' or pins[policy .. '@' .. revision]
    else
      -- nothing of it went out: it begins anew. What is no stream is read below, when the call is
      -- this worker's to end
      entries = redis.pcall('XRANGE', stream, '-', '+', 'COUNT', 64)
      if entries.err then entries = nil end
      is_able = not entries or #entries == 0 or may_begin(select(2, start_of(entries)))
    end
    if is_able then
      redis.call('HDEL', lease, 'o')
    elseif now - (tonumber(waits_since or now) or 0) < patience_ms then
      leave(entry)
      redis.call('HSETNX', lease, 'o', digits(now))
      return {'OTHER'}
    end
    -- a takeover at the number of the takeover before it made no progress
    takeovers = taken_at == number and (tonumber(takeovers) or 0) + 1 or 0
    redis.call('HSET', lease, 't', token, 'e', entry, 'k', takeovers, 'kn', number)
    redis.call('HDEL', lease, 'i')
    entries = entries or first_entries(stream)
  end
  redis.call('PEXPIRE', lease, call_ttl_ms)
  local body = redis.call('STRLEN', body_key)
  if body <= 65536 then body = redis.call('GET', body_key) end
  -- whom nobody had waited for nothing: it has no facts
  return {
    'OK', number or '0', digest or '', seq or '0', policy or '', revision or '',
    is_fresh and '-1' or tostring(takeovers), entries, body,
    is_fresh and {} or redis.call('HGETALL', facts), not is_fresh and died_in_it or '',
    written or '',
  }
end

local answers = {}
for i = 1, (#KEYS - 1) / 4 do
  local key = 4 * i - 2
  -- a call whose keys are spoilt must not take the others with it
  local lease, stream, body_key, facts = unpack(KEYS, key, key + 3)
  local done, answer = pcall(claim, lease, stream, body_key, facts, row(i, fixed, 3))
  if not done then
    answer = {'ERROR', type(answer) == 'table' and answer.err or tostring(answer)}
  end
  answers[i] = answer
end
return answers
