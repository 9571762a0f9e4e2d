#!lua flags=allow-oom
-- KEYS dispatch, then of each call: lease
-- ARGV consumer call_ttl_ms, then of each call: token entry
-- allow-oom: a lease that dies because Redis is full would start a false takeover
-- include: rows
local dispatch, consumer, call_ttl_ms = KEYS[1], ARGV[1], ARGV[2]
local outcomes = {}
for i = 1, #KEYS - 1 do
  local lease = KEYS[i + 1]
  local token, entry = row(i, 2, 2)
  -- a lease that is spoilt must not take the others with it
  local owner = redis.pcall('HGET', lease, 't')
  if not owner or type(owner) == 'table' then
    outcomes[i] = 'GONE'
  elseif owner == token
    and #redis.call('XCLAIM', dispatch, 'policy', consumer, 0, entry, 'IDLE', 0, 'JUSTID') == 1 then
    redis.call('PEXPIRE', lease, call_ttl_ms)
    outcomes[i] = 'OK'
  else
    outcomes[i] = 'FENCED'
  end
end
return outcomes
