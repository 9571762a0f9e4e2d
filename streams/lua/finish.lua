#!lua flags=allow-oom
-- KEYS dispatch audit reply counts ended, then of each call: lease stream facts
-- ARGV ended_ttl_ms reply_ttl_ms, then of each call: token audit reply is_gone counts
-- include: rows
local dispatch, audit_stream, reply_stream, counters, ended_stream = unpack(KEYS, 1, 5)
local ended_ttl_ms, reply_ttl_ms = ARGV[1], ARGV[2]

local outcomes, taken, records, replies, entries, ended = {}, {}, {}, {}, {}, {}
for i = 1, (#KEYS - 5) / 3 do
  local lease = KEYS[3 * i + 3]
  local token, audit, reply, is_gone, counts = row(i, 2, 5)
  local c = redis.pcall('HMGET', lease, 't', 'e')
  local outcome
  if c[1] == 'closed' then outcome = 'CLOSED'
  elseif not c[1] and is_gone == '0' then outcome = 'GONE'
  elseif c[1] and c[1] ~= token then outcome = 'FENCED'
  else
    outcome = 'OK'
    if c.err then redis.call('DEL', lease) end
    taken[#taken + 1] = 3 * i + 3
    records[#records + 1] = 'b'
    records[#records + 1] = audit
    -- a worker that gives up sends the gateway an error, or its client would wait for the activity
    -- timeout; also one that looks dead: it may only be stopped
    if reply ~= '' then
      replies[#replies + 1] = 'b'
      replies[#replies + 1] = reply
    end
    if c[1] and c[2] then entries[#entries + 1] = c[2] end
    ended[#ended + 1] = 'c'
    ended[#ended + 1] = string.match(lease, '[^:]+$')
    -- a count that is refused must not keep a call from its end
    for name, number in string.gmatch(counts, '(%S+) (%d+)') do
      redis.pcall('HINCRBY', counters, name, number)
    end
  end
  outcomes[i] = outcome
end

if #records > 0 then redis.call('XADD', audit_stream, '*', unpack(records)) end
-- whatever became of that stream, a call must end
if #ended > 0 then
  redis.pcall('XADD', ended_stream, 'MAXLEN', '~', MAX_ENDED_CALLS, '*', unpack(ended))
end
if #replies > 0 then
  redis.call('XADD', reply_stream, '*', unpack(replies))
  redis.call('PEXPIRE', reply_stream, reply_ttl_ms)
end
if #entries > 0 then
  -- ids that were spoilt must not keep what is written from being known: it would be written again
  redis.pcall('XACK', dispatch, 'policy', unpack(entries))
  redis.pcall('XDEL', dispatch, unpack(entries))
end
for _, key in ipairs(taken) do
  redis.call('HSET', KEYS[key], 't', 'closed')
  redis.call('PEXPIRE', KEYS[key], ended_ttl_ms)
  -- what the call was is nineteen of twenty bytes, or what it went on with is, and nothing comes of
  -- reading either once it has ended
  for of_call = key + 1, key + 2 do
    redis.call('PEXPIRE', KEYS[of_call], math.min(ended_ttl_ms, 5000))
  end
end
return outcomes
