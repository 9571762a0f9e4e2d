#!lua
-- KEYS lease cold accounts, then the accounts of the call
-- ARGV call_id tokens nano expires ttl_ms channel windows, then of each window its name; then of each account: is_counted ttl_ms
-- limits, and of each limit: field most
-- An account is a hash: `gen` once the record was asked for it, what was used in each window (its name and `t` for tokens, `u` for
-- nano-dollars), and `l` with a call's id for what that holds: tokens, nano-dollars, until when, its windows. All limits are checked
-- before anything is taken. A call that holds something already gets what is missing.
-- include: clock
local call, tokens, nano, expires, ttl, channel = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local windows, at = {}, 8 + tonumber(ARGV[7])
for i = 8, at - 1 do windows[#windows + 1] = ARGV[i] end
local held, left, is_cold = {}, {}, false
for i = 4, #KEYS do
  local gen, lease = unpack(redis.call('HMGET', KEYS[i], 'gen', 'l' .. call))
  local has_t, has_u = string.match(lease or '0 0', '^(%d+) (%d+)')
  local t, u = math.max(tokens - has_t, 0), math.max(nano - has_u, 0)
  held[i] = { t, u, ARGV[at + 1], has_t + t, has_u + u }
  if ARGV[at] == '1' and not gen then
    redis.call('SADD', KEYS[2], KEYS[i])
    is_cold = true
  elseif not gen then
    -- its minutes are cleared when it is compared with the record
    redis.call('SADD', KEYS[3], KEYS[i])
  end
  local limits = tonumber(ARGV[at + 2])
  for j = 1, limits do
    local field, most = ARGV[at + 2 * j + 1], tonumber(ARGV[at + 2 * j + 2])
    local used = tonumber(redis.call('HGET', KEYS[i], field) or 0)
    local more = string.sub(field, -1) == 'u' and u or t
    if used + more > most and not is_cold then
      return { 'FULL', tostring(i - 4), tostring(j - 1), digits(math.max(most - used, 0)) }
    end
    left[#left + 1] = digits(most - used - more)
  end
  at = at + 3 + 2 * limits
end
if is_cold then
  redis.call('PUBLISH', channel, '')
  return { 'COLD' }
end
for i = 4, #KEYS do
  for _, window in ipairs(windows) do
    redis.call('HINCRBY', KEYS[i], window .. 't', digits(held[i][1]))
    redis.call('HINCRBY', KEYS[i], window .. 'u', digits(held[i][2]))
  end
  redis.call('HSET', KEYS[i], 'l' .. call,
    digits(held[i][4]) .. ' ' .. digits(held[i][5]) .. ' ' .. expires .. ' ' .. table.concat(windows, ' '))
  redis.call('PEXPIRE', KEYS[i], held[i][3])
end
redis.call('SET', KEYS[1], table.concat(KEYS, '\n', 4), 'PX', ttl)
return { 'OK', unpack(left) }
