"""The Lua scripts: every step that must be one step. Each names its keys and arguments first; time
is Redis' own."""

from hashlib import sha1

from protocol.bounds import MAX_ENDED_CALLS
from streams import judge_scripts, memory_scripts

MAX_PASSED_ON = 16
"""How often a call of another policy set goes to the next worker at once; then it waits for one
that looks for what was left."""

START = f"""
-- KEYS dispatch audit memory (call body)..
-- ARGV max_queue max_backlog claim_ms call_ttl body_ttl there('1': bodies are set already) (start
-- body call_id key)..
{memory_scripts.TAKE}
local open, full = redis.call('XLEN', KEYS[1]), redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[2])
local t = redis.call('TIME')
local due = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000) + tonumber(ARGV[3]))
local function begin(call, body, start, text, id, key)
  local size = (ARGV[6] == '1' and redis.call('STRLEN', body)
    or #text) + {memory_scripts.CALL_BYTES}
  local refused = open >= tonumber(ARGV[1]) and 'QUEUE' or full and 'BACKLOG'
    or has_share(KEYS[3], key, size) and 'KEY'
  if refused then
    if ARGV[6] == '1' then redis.call('SET', body, '', 'PX', 1) end
    return refused
  end
  if ARGV[6] ~= '1' then redis.call('SET', body, text, 'PX', ARGV[5]) end
  redis.call('XADD', call, '0-1', 'b', start)
  redis.call('PEXPIRE', call, ARGV[4])
  redis.call('XADD', KEYS[1], '*', 'c', id, 'd', due)
  take(KEYS[3], id, key, size)
  open = open + 1
  return 'OK'
end
local out = {{}}
for i = 4, #KEYS, 2 do
  local a = (i - 4) / 2 * 4 + 7
  -- one that is refused (Redis is full, its keys are spoilt) has an outcome of its own: those
  -- before it have begun
  local done, outcome = pcall(begin, KEYS[i], KEYS[i + 1], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a
    + 3])
  if not done and type(outcome) ~= 'table' then outcome = {{err = tostring(outcome)}} end
  out[#out + 1] = outcome
end
return out
"""
"""Put calls onto their own streams and the dispatch stream, and charge them to their keys, unless a
bound is passed.

A large body is set by a command before, in the same MULTI: through a script Redis copies it several
times, 1 MB for 0.6-2 ms of its CPU.
"""

APPEND_LAST = """#!lua flags=allow-oom
-- KEYS call; ARGV channel (id blob hint)..
-- allow-oom: the entries that end a call must go in though Redis is full, because only its end
-- gives back what it takes
for i = 2, #ARGV, 3 do
  local outcome = redis.pcall('XADD', KEYS[1], 'NOMKSTREAM', ARGV[i], 'b', ARGV[i + 1])
  if not outcome then return 'GONE' end
  if type(outcome) == 'table' and outcome.err and not string.find(outcome.err, 'equal or smaller',
    1, true) then return outcome end
  redis.call('PUBLISH', ARGV[1], ARGV[i + 2])
end
return 'OK'
"""
"""Append the last entries of a call, again or for the first time, where the ordinary way was
refused."""

CLAIM = """#!lua flags=allow-oom
-- allow-oom: a call whose worker died must find another also while Redis is full, or it would never
-- end
-- KEYS dispatch (ctl call body facts)..
-- ARGV consumer takeover('1'|'0') call_ttl late('1'|'0') lease patience pins
-- (policy@revision|!key|=set).. (token entry due)..
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local pins = {}
local shared = false
for i = 8, 7 + ARGV[7] do
  pins[ARGV[i]] = true
  shared = shared or string.sub(ARGV[i], 1, 1) == '!'
end
-- of START the sixth is the API key, the fifteenth the policy sets under which the call may begin;
-- what follows may be bytes, which Lua
-- cannot unpack. One that cannot be read is taken, and ended
local function start_of(entries)
  local blob = entries[1][2][2]
  local found = {pcall(cmsgpack.unpack_limit, blob, 15, string.byte(blob) == 0xdc and 3 or 1)}
  return found[1] and found[8], found[1] and found[17]
end
-- a START that cannot be read names none, and is taken
local function may_begin(sets)
  if type(sets) ~= 'table' or #sets == 0 then return true end
  for _, set in ipairs(sets) do if pins['=' .. set] then return true end end
  return false
end
-- any worker may take the entry at once, so that one that can soon does
local function leave(entry) redis.call('XCLAIM', KEYS[1], 'policy', ARGV[1], 0, entry, 'IDLE',
  ARGV[5], 'JUSTID') end
-- anew, behind what waits: who has waited longest gets it next. Workers look for what was left in
-- step, and the same is always first
local function pass_on(entry, due)
  local found = redis.call('XRANGE', KEYS[1], entry, entry)[1]
  local times = found and tonumber(found[2][6] or 0) or MAX_PASSED_ON
  if times >= MAX_PASSED_ON then return leave(entry) end
  redis.call('XADD', KEYS[1], '*', 'c', found[2][2], 'd', due, 'x', times + 1)
  redis.call('XACK', KEYS[1], 'policy', entry)
  redis.call('XDEL', KEYS[1], entry)
end
local function claim(ctl, call, body, facts, token, entry, due)
  local pending = redis.call('XPENDING', KEYS[1], 'policy', entry, entry, 1)
  if not pending[1] or pending[1][2] ~= ARGV[1] then return {'LOST'} end
  local c = redis.call('HMGET', ctl, 't', 'n', 'h', 's', 'p', 'r', 'k', 'kn', 'o', 'i', 'w')
  -- also where Redis lost the call's numbers before its end was written
  if c[1] == 'closed' then return {'CLOSED'} end
  local fresh, entries = not c[2]
  if fresh then
    entries = redis.call('XRANGE', call, '-', '+', 'COUNT', 64)
    if #entries == 0 then return {'CLOSED'} end
    if ARGV[4] == '0' and now > tonumber(due) then return {'EXPIRED'} end
    if ARGV[4] == '0' then
      local key, sets = start_of(entries)
      if not may_begin(sets) then
        pass_on(entry, due)
        return {'SET', table.concat(sets, ' ')}
      end
      if shared and pins['!' .. tostring(key)] then
        leave(entry)
        return {'SHARE'}
      end
    end
    redis.call('HSET', ctl, 't', token, 'n', 0, 'h', '', 's', 0, 'e', entry, 'k', 0, 'kn', -1)
  else
    if c[1] ~= '' and ARGV[2] == '0' then return {'OWNED'} end
    local has
    if c[6] then
      -- a refused call has an empty revision: any worker can give the same answer again
      has = c[6] == '' or pins[c[5] .. '@' .. c[6]]
    else
      -- nothing of it went out: it begins anew. What is no stream is read below, when the call is
      -- this worker's to end
      entries = redis.pcall('XRANGE', call, '-', '+', 'COUNT', 64)
      if entries.err then entries = nil end
      has = not entries or #entries == 0 or may_begin(select(2, start_of(entries)))
    end
    if has then
      redis.call('HDEL', ctl, 'o')
    elseif now - (tonumber(c[9] or now) or 0) < tonumber(ARGV[6]) then
      leave(entry)
      redis.call('HSETNX', ctl, 'o', string.format('%.0f', now))
      return {'OTHER'}
    end
    -- a takeover at the n of the takeover before it made no progress
    local k = 0
    if c[8] == c[2] then k = (tonumber(c[7]) or 0) + 1 end
    redis.call('HSET', ctl, 't', token, 'e', entry, 'k', k, 'kn', c[2])
    redis.call('HDEL', ctl, 'i')
    c[7] = tostring(k)
    entries = entries or redis.call('XRANGE', call, '-', '+', 'COUNT', 64)
  end
  redis.call('PEXPIRE', ctl, ARGV[3])
  local text = redis.call('STRLEN', body)
  if text <= 65536 then text = redis.call('GET', body) end
  -- whom nobody had waited for nothing: it has no facts
  return
    {'OK', c[2] or '0', c[3] or '', c[4] or '0', c[5] or '', c[6] or '', fresh and '-1' or c[7],
    entries, text, fresh and {} or redis.call('HGETALL', facts), not fresh and c[10] or '', c[11]
      or ''}
end
local out = {}
for i = 2, #KEYS, 4 do
  local a = 8 + ARGV[7] + (i - 2) / 4 * 3
  -- one whose keys are spoilt must not take the others with it
  local done, outcome = pcall(claim, KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3], ARGV[a], ARGV[a
    + 1], ARGV[a + 2])
  out[#out + 1] = done and outcome or
    {'ERROR', type(outcome) == 'table' and outcome.err or tostring(outcome)}
end
return out
""".replace("MAX_PASSED_ON", str(MAX_PASSED_ON))
"""Take delivered calls: check and touch both truths of each lease, the pending entry and the
control key.

A call whose pinned policy and revision are not among the worker's is left to others for `patience`;
then it is given all the same, to be closed. So is one that somebody took and had not begun, where
it may not begin under the worker's policy set (`=set`). A new one is passed on to others, some
times at once and then as they look for it, until it is too late; new calls of a key that has its
share of this worker (`!key`) are left to them. Of a body over 64 KiB only its size comes: a command
of its own reads it at half the price.
"""

REPLAYED = """#!lua flags=allow-oom
-- KEYS ctl; ARGV token
if redis.call('HGET', KEYS[1], 't') ~= ARGV[1] then return 'FENCED' end
redis.call('HSET', KEYS[1], 'k', 0, 'kn', -1)
redis.call('HDEL', KEYS[1], 'i')
return 'OK'
"""
"""Mark that a call taken over did its new owner no harm: takeovers are counted anew."""

INSIDE = """#!lua flags=allow-oom
-- KEYS ctl; ARGV token inside('1'|'0')
if redis.call('HGET', KEYS[1], 't') ~= ARGV[1] then return 'FENCED' end
if ARGV[2] == '1' then redis.call('HSET', KEYS[1], 'i', '1') else redis.call('HDEL', KEYS[1], 'i')
  end
return 'OK'
"""
"""Mark that the owner of a call is in a step of it that may be the owner's end, or is not any
more."""

RENEW = """#!lua flags=allow-oom
-- KEYS dispatch ctl..; ARGV consumer call_ttl (token entry)..
-- allow-oom: a lease that dies because Redis is full would start a false takeover
local out = {}
for i = 2, #KEYS do
  local token, entry = ARGV[2 * i - 1], ARGV[2 * i]
  -- one whose lease is spoilt must not take the others' with it
  local owner = redis.pcall('HGET', KEYS[i], 't')
  if not owner or type(owner) == 'table' then
    out[i - 1] = 'GONE'
  elseif owner == token and #redis.call('XCLAIM', KEYS[1], 'policy', ARGV[1], 0, entry, 'IDLE', 0,
    'JUSTID') == 1 then
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
    out[i - 1] = 'OK'
  else
    out[i - 1] = 'FENCED'
  end
end
return out
"""
"""Renew the leases of a worker; returns an outcome for each."""

HANDOVER = """#!lua flags=allow-oom
-- KEYS ctl dispatch; ARGV token call_id within_ms
if redis.call('HGET', KEYS[1], 't') ~= ARGV[1] then return 'FENCED' end
local entry = redis.call('HGET', KEYS[1], 'e')
local t = redis.call('TIME')
local due = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000) + tonumber(ARGV[3]))
local fresh = redis.call('XADD', KEYS[2], '*', 'c', ARGV[2], 'd', due)
redis.call('XACK', KEYS[2], 'policy', entry)
redis.call('XDEL', KEYS[2], entry)
redis.call('HSET', KEYS[1], 't', '', 'e', fresh, 'kn', -1)
redis.call('HDEL', KEYS[1], 'i')
return 'OK'
"""
"""Give a call back so that another worker claims it at once. Its owner stops in order: it did not
die in a step of it."""

RELEASE = """
-- KEYS gw reply audit ctl..; ARGV max_reply reply_ttl strict('1'|'0') (token number next hash seq
-- reply audit policy revision written)..
-- policy and revision come with a call's first release, and are empty after it
local read = redis.call('GET', KEYS[1])
local full = false
if read then
  redis.call('XTRIM', KEYS[2], 'MINID', read)
  full = redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[1])
end
local out, taken, records, replies = {}, {}, {}, {}
for i = 4, #KEYS do
  local a = 10 * (i - 4) + 3
  local number, nextn, reply, audit = ARGV[a + 2], ARGV[a + 3], ARGV[a + 6], ARGV[a + 7]
  -- a lease that is no hash is none
  local c = redis.pcall('HMGET', KEYS[i], 't', 'n', 'h')
  local outcome
  if not c[1] then outcome = 'GONE'
  elseif c[1] == 'closed' then outcome = 'CLOSED'
  elseif c[1] ~= ARGV[a + 1] then outcome = 'FENCED'
  elseif c[2] ~= number then
    if c[2] == nextn and c[3] == ARGV[a + 4] then outcome = 'DUP' else outcome = 'SEQ' end
  elseif reply ~= '' and not read then outcome = 'GATEWAY_LOST'
  elseif reply ~= '' and full then outcome = 'FULL'
  else
    outcome = 'OK'
    taken[#taken + 1] = i
    if audit ~= '' then
      records[#records + 1] = 'b'
      records[#records + 1] = audit
    end
    if reply ~= '' then
      replies[#replies + 1] = 'b'
      replies[#replies + 1] = reply
    end
  end
  out[i - 3] = outcome
end
-- one entry of each stream for all calls: an entry of its own for each cost Redis 16 us a call, of
-- 36 a chunk
local id
if #records > 0 then id = redis.call('XADD', KEYS[3], '*', unpack(records)) end
if #replies > 0 then
  if id and ARGV[3] == '1' then
    -- strict: the gateway holds them until that entry is committed
    replies[#replies + 1] = 'a'
    replies[#replies + 1] = id
  end
  redis.call('XADD', KEYS[2], '*', unpack(replies))
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
for _, i in ipairs(taken) do
  local a = 10 * (i - 4) + 3
  local w = ARGV[a + 3] .. ':' .. ARGV[a + 10]
  if ARGV[a + 8] == '' then
    redis.call('HSET', KEYS[i], 'n', ARGV[a + 3], 'h', ARGV[a + 4], 's', ARGV[a + 5], 'w', w)
  else
    redis.call('HSET', KEYS[i], 'n', ARGV[a + 3], 'h', ARGV[a + 4], 's', ARGV[a + 5], 'w', w, 'p',
      ARGV[a + 8], 'r', ARGV[a + 9])
  end
end
return out
"""
"""Release and record in one step, for up to 60 calls of one shard and gateway, each fenced by token
and number.

The first release of a call pins its policy revision, in the same step: nothing goes out under a
revision that a takeover would not know.
"""

FINISH = """#!lua flags=allow-oom
-- KEYS dispatch audit reply counts (ctl call facts).. ended; ARGV ended_ttl reply_ttl (token audit
-- reply gone('1'|'0') counts)..
local out, taken, records, replies, entries, ended = {}, {}, {}, {}, {}, {}
for i = 5, #KEYS - 1, 3 do
  local a = (i - 5) / 3 * 5 + 2
  local c = redis.pcall('HMGET', KEYS[i], 't', 'e')
  local outcome
  if c[1] == 'closed' then outcome = 'CLOSED'
  elseif not c[1] and ARGV[a + 4] == '0' then outcome = 'GONE'
  elseif c[1] and c[1] ~= ARGV[a + 1] then outcome = 'FENCED'
  else
    outcome = 'OK'
    if c.err then redis.call('DEL', KEYS[i]) end
    taken[#taken + 1] = i
    records[#records + 1] = 'b'
    records[#records + 1] = ARGV[a + 2]
    -- a worker that gives up sends the gateway an error, or its client would wait for the activity
    -- timeout; also one that looks dead:
    -- it may only be stopped
    if ARGV[a + 3] ~= '' then
      replies[#replies + 1] = 'b'
      replies[#replies + 1] = ARGV[a + 3]
    end
    if c[1] and c[2] then entries[#entries + 1] = c[2] end
    ended[#ended + 1] = 'c'
    ended[#ended + 1] = string.match(KEYS[i], '[^:]+$')
    -- a count that is refused must not keep a call from its end
    for name, number in string.gmatch(ARGV[a + 5], '(%S+) (%d+)') do redis.pcall('HINCRBY', KEYS[4],
      name, number) end
  end
  out[#out + 1] = outcome
end
if #records > 0 then redis.call('XADD', KEYS[2], '*', unpack(records)) end
-- whatever became of that stream, a call must end
if #ended > 0 then redis.pcall('XADD', KEYS[#KEYS], 'MAXLEN', '~', MAX_ENDED_CALLS, '*',
  unpack(ended)) end
if #replies > 0 then
  redis.call('XADD', KEYS[3], '*', unpack(replies))
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
end
if #entries > 0 then
  -- ids that were spoilt must not keep what is written from being known: it would be written again
  redis.pcall('XACK', KEYS[1], 'policy', unpack(entries))
  redis.pcall('XDEL', KEYS[1], unpack(entries))
end
for _, i in ipairs(taken) do
  redis.call('HSET', KEYS[i], 't', 'closed')
  redis.call('PEXPIRE', KEYS[i], ARGV[1])
  -- what the call was is nineteen of twenty bytes, or what it went on with is, and nothing comes of
  -- reading either once it has ended
  for key = i + 1, i + 2 do redis.call('PEXPIRE', KEYS[key], math.min(ARGV[1], 5000)) end
end
return out
""".replace("MAX_ENDED_CALLS", str(MAX_ENDED_CALLS))
"""Write terminal records and let go of the calls, up to 60 of one shard and gateway; nothing can be
released after it. `gone`: also where Redis lost the call, or its lease cannot be read.

The call's stream and facts stay 5 s: for a worker that is still reading them, and does not know yet
that another ended the call. The key that marks it as ended stays for `ended_ttl`.
"""

BEAT = """#!lua flags=allow-oom
-- KEYS gw reply memory; ARGV read ttl most
-- allow-oom: a full Redis must not make a living gateway look dead
redis.pcall('HSET', KEYS[3], 'most', ARGV[3])
local new = ARGV[1] == '0-0'
local was = redis.call('EXISTS', KEYS[1])
local found = redis.pcall('XRANGE', KEYS[2], ARGV[1], '+', 'COUNT', 2)
if found.err then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return {found.err, 0, was}
end
-- trimming leaves it there: without it this is not the stream that was read, and what was read of
-- this one is not known
local known = new or found[1] and found[1][1] == ARGV[1]
redis.call('SET', KEYS[1], known and ARGV[1] or '0-0', 'PX', ARGV[2])
return {known and 'OK' or 'LOST', #found > ((new or not known) and 0 or 1) and 1 or 0, was}
"""
"""Write a gateway's heartbeat, with how far it has read its replies, and how much memory one key
may have. Returns whether that is an entry of its stream (OK, LOST, or why it is not known), whether
more is there, and whether the heartbeat before was still there.
"""

SHOW_GATEWAY = """#!lua flags=allow-oom
-- KEYS gateways; ARGV gateway trouble ttl
local t = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)) ..
  ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 'OK'
"""
"""Write a gateway's heartbeat for `sluice doctor`, with what is wrong with it."""

HEARTBEAT = """#!lua flags=allow-oom
-- KEYS workers primary; ARGV process..
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
for i = 1, #ARGV do redis.call('HSET', KEYS[1], ARGV[i], now) end
-- a key of another kind says nothing
local primary = redis.pcall('GET', KEYS[2])
if type(primary) == 'string' and string.find(primary, 'old') then return 'OLD' end
return 'OK'
"""
"""Write the heartbeat of a worker process. The answer says whether this Redis is an old primary
(`streams.identity`)."""

READ = """#!lua flags=allow-oom
-- KEYS audit; ARGV consumer count bytes idle_ms ('' to leave what others hold); a few entries at a
-- time, because each may be megabytes
local out, count, size = {}, 0, 0
-- nothing of a writer that still reads: it may be storing large bodies for long, and they would be
-- stored twice. Nor of this one itself
local dead = {}
for _, fields in ipairs(ARGV[4] ~= '' and redis.call('XINFO', 'CONSUMERS', KEYS[1], 'audit')
  or {}) do
  local c = {}
  for i = 1, #fields, 2 do c[fields[i]] = fields[i + 1] end
  if c.name ~= ARGV[1] and c.pending > 0 and c.idle >= tonumber(ARGV[4])
    then dead[#dead + 1] = c.name end
end
while count < tonumber(ARGV[2]) and size < tonumber(ARGV[3]) do
  local entries
  if #dead > 0 then
    local ids = {}
    for _, one in ipairs(redis.call('XPENDING', KEYS[1], 'audit', 'IDLE', ARGV[4], '-', '+', 10,
      dead[#dead])) do ids[#ids + 1] = one[1] end
    if #ids < 10 then dead[#dead] = nil end
    entries = #ids > 0 and redis.call('XCLAIM', KEYS[1], 'audit', ARGV[1], ARGV[4], unpack(ids))
      or {}
  else
    local answer = redis.call('XREADGROUP', 'GROUP', 'audit', ARGV[1], 'COUNT', 10, 'STREAMS',
      KEYS[1], '>')
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
"""
"""Take entries for an audit writer, until they hold a number of blobs or pass a number of bytes;
first those of writers that died."""

TRIM = """#!lua flags=allow-oom
-- KEYS audit committed trimmed; ARGV publish('1'|'0') [entry ...]
if ARGV[2] then redis.call('XACK', KEYS[1], 'audit', unpack(ARGV, 2)) end
local function below()
  local p = redis.call('XPENDING', KEYS[1], 'audit')
  if p[1] > 0 then return p[2] end
  for _, fields in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local g = {}
    for i = 1, #fields, 2 do g[fields[i]] = fields[i + 1] end
    if g.name == 'audit' then
      local ms, n = string.match(g['last-delivered-id'], '(%d+)-(%d+)')
      return ms .. '-' .. string.format('%.0f', tonumber(n) + 1)
    end
  end
  return '0-0'
end
local id = below()
if ARGV[1] == '1' then
  redis.call('SET', KEYS[2], id, 'PX', 3600000)
  redis.call('PUBLISH', KEYS[2], id)
end
if redis.call('EXISTS', KEYS[3]) == 0 then
  local s = {}
  local found = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #found, 2 do s[found[i]] = found[i + 1] end
  redis.call('SET', KEYS[3], s['entries-added'] - s.length)
end
local trimmed = redis.call('XTRIM', KEYS[1], 'MINID', id)
if trimmed > 0 then redis.call('INCRBY', KEYS[3], trimmed) end
return trimmed
"""
"""Acknowledge entries, then trim the audit stream below the smallest unacknowledged id, or up to
the last delivered one; publish that id if asked. Everything below it is committed by every writer.
A user who may append may also trim (XADD's MAXLEN, which no ACL refuses), so entries trimmed here
are counted."""

MISSING = """
-- KEYS audit trimmed
local s = {}
local found = redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #found, 2 do s[found[i]] = found[i + 1] end
return s['entries-added'] - s.length - (redis.call('GET', KEYS[2]) or s['entries-added'] - s.length)
"""
"""How many audit entries went away without being trimmed; below 0 when the stream was taken away
and begun anew."""

FACT = """#!lua flags=allow-oom
-- KEYS facts call; ARGV channel (field value)..; the first value of a field stays
local left, written = redis.call('PTTL', KEYS[2]), {}
for i = 2, #ARGV, 2 do
  written[#written + 1] = left == -2 and 0 or redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1])
  redis.call('PUBLISH', ARGV[1], ARGV[i])
end
if left > 0 then redis.call('PEXPIRE', KEYS[1], left) end
return written
"""
"""Write facts, each once, and publish their fields on the call's channel. They stay as long as the
call's stream: a call that is over takes none."""

FORGET = """
-- KEYS stream; ARGV group idle_ms
local forgotten = 0
for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local c = {}
  for i = 1, #fields, 2 do c[fields[i]] = fields[i + 1] end
  if c.pending == 0 and c.idle > tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], c.name)
    forgotten = forgotten + 1
  end
end
return forgotten
"""
"""Forget consumers of processes that ended long ago: a living one asks at least once a second, and
nothing pending is forgotten."""

ALL = (
    START,
    APPEND_LAST,
    CLAIM,
    REPLAYED,
    INSIDE,
    RENEW,
    HANDOVER,
    RELEASE,
    FINISH,
    BEAT,
    SHOW_GATEWAY,
    HEARTBEAT,
    READ,
    TRIM,
    MISSING,
    FACT,
    judge_scripts.JUDGE_ASK,
    judge_scripts.JUDGE_TURN,
    FORGET,
    *memory_scripts.ALL,
)
_SHA = {source: sha1(source.encode(), usedforsecurity=False).hexdigest() for source in ALL}


def sha(source: str) -> str:
    """The name under which Redis knows a script."""
    return _SHA[source]
