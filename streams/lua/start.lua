-- KEYS dispatch audit memory, then of each call: stream body
-- ARGV max_queue max_backlog claim_ms call_ttl_ms body_ttl_ms has_bodies (they are set already),
--      then of each call: start body id key
-- include: charge clock rows
local dispatch, audit, memory = KEYS[1], KEYS[2], KEYS[3]
local max_queue, max_backlog, claim_ms, call_ttl_ms, body_ttl_ms, has_bodies = unpack(ARGV, 1, 6)
max_queue, has_bodies = tonumber(max_queue), has_bodies == '1'

local open = redis.call('XLEN', dispatch)
local is_full = redis.call('XLEN', audit) >= tonumber(max_backlog)
local due = digits(now_ms() + tonumber(claim_ms))

local function begin(stream, body_key, start, body, id, key)
  local size = (has_bodies and redis.call('STRLEN', body_key) or #body) + CALL_BYTES
  local refused = open >= max_queue and 'QUEUE' or is_full and 'BACKLOG'
    or has_share(memory, key, size) and 'KEY'
  if refused then
    if has_bodies then redis.call('SET', body_key, '', 'PX', 1) end
    return refused
  end
  if not has_bodies then redis.call('SET', body_key, body, 'PX', body_ttl_ms) end
  redis.call('XADD', stream, '0-1', 'b', start)
  redis.call('PEXPIRE', stream, call_ttl_ms)
  redis.call('XADD', dispatch, '*', 'c', id, 'd', due)
  take(memory, id, key, size)
  open = open + 1
  return 'OK'
end

local outcomes = {}
for i = 1, (#KEYS - 3) / 2 do
  -- a call that is refused (Redis is full, its keys are spoilt) has an outcome of its own: those
  -- before it have begun
  local done, outcome = pcall(begin, KEYS[2 * i + 2], KEYS[2 * i + 3], row(i, 6, 4))
  if not done and type(outcome) ~= 'table' then outcome = {err = tostring(outcome)} end
  outcomes[i] = outcome
end
return outcomes
