#!lua flags=allow-oom
-- KEYS lease; the accounts that it names have its tag
-- ARGV call_id tokens nano is_stored
-- Puts what a call took in place of what it reserved; twice is once. Once that is in the record, the accounts still hold it for 10 s: who
-- compares them with the record first began to read that, and then asks what is held.
-- include: clock
local call, tokens, nano, is_stored = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local accounts = redis.call('GET', KEYS[1])
if not accounts then return 0 end
local now = now_ms()
for account in string.gmatch(accounts, '[^\n]+') do
  local lease = redis.call('HGET', account, 'l' .. call)
  if lease then
    local t, u, rest = string.match(lease, '^(%d+) (%d+) (.*)$')
    local _, _, windows = string.find(rest, '^%d+ (.*)$')
    for window in string.gmatch(windows, '%S+') do
      if redis.call('HEXISTS', account, window .. 't') == 1 then
        redis.call('HINCRBY', account, window .. 't', digits(tokens - t))
        redis.call('HINCRBY', account, window .. 'u', digits(nano - u))
      end
    end
    redis.call('HSET', account, 'l' .. call, tokens .. ' ' .. nano .. ' ' .. rest)
    if is_stored then
      local done = account .. ':done'
      redis.call('RPUSH', done, digits(now) .. ' ' .. call)
      redis.call('PEXPIRE', done, 3600000)
      for _ = 1, 20 do
        local since, old = string.match(redis.call('LINDEX', done, 0) or '', '^(%d+) (.*)$')
        if not since or now - since < 10000 then break end
        redis.call('LPOP', done)
        redis.call('HDEL', account, 'l' .. old)
      end
    end
  end
end
if is_stored then redis.call('DEL', KEYS[1]) end
return 1
