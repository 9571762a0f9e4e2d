-- KEYS gateway reply audit, then of each call: lease
-- ARGV max_reply reply_ttl_ms is_strict,
--      then of each call: token number next digest seq reply audit policy revision written
-- policy and revision come with a call's first release, and are empty after it
-- the ten of a call are unpacked in place: a function for it costs 1.5 % of a release
local gateway, reply_stream, audit_stream = KEYS[1], KEYS[2], KEYS[3]
local max_reply, reply_ttl_ms, is_strict = unpack(ARGV, 1, 3)

local read = redis.call('GET', gateway)
local is_full = false
if read then
  redis.call('XTRIM', reply_stream, 'MINID', read)
  is_full = redis.call('XLEN', reply_stream) >= tonumber(max_reply)
end

local outcomes, taken, records, replies = {}, {}, {}, {}
for i = 1, #KEYS - 3 do
  local token, number, next_number, digest, _, reply, audit = unpack(ARGV, 10 * i - 6, 10 * i + 3)
  -- a lease that is no hash is none
  local c = redis.pcall('HMGET', KEYS[i + 3], 't', 'n', 'h')
  local outcome
  if not c[1] then outcome = 'GONE'
  elseif c[1] == 'closed' then outcome = 'CLOSED'
  elseif c[1] ~= token then outcome = 'FENCED'
  elseif c[2] ~= number then outcome = c[2] == next_number and c[3] == digest and 'DUP' or 'SEQ'
  elseif reply ~= '' and not read then outcome = 'GATEWAY_LOST'
  elseif reply ~= '' and is_full then outcome = 'FULL'
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
  outcomes[i] = outcome
end

-- one entry of each stream for all calls: an entry of its own for each cost Redis 16 us a call, of
-- 36 a chunk
local id
if #records > 0 then id = redis.call('XADD', audit_stream, '*', unpack(records)) end
if #replies > 0 then
  if id and is_strict == '1' then
    -- strict: the gateway holds them until that entry is committed
    replies[#replies + 1] = 'a'
    replies[#replies + 1] = id
  end
  redis.call('XADD', reply_stream, '*', unpack(replies))
  redis.call('PEXPIRE', reply_stream, reply_ttl_ms)
end

for _, i in ipairs(taken) do
  local _, _, next_number, digest, seq, _, _, policy, revision, written = unpack(ARGV, 10 * i - 6, 10 * i + 3)
  local lease, w = KEYS[i + 3], next_number .. ':' .. written
  if policy == '' then
    redis.call('HSET', lease, 'n', next_number, 'h', digest, 's', seq, 'w', w)
  else
    redis.call('HSET', lease, 'n', next_number, 'h', digest, 's', seq, 'w', w,
      'p', policy, 'r', revision)
  end
end
return outcomes
