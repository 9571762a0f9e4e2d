#!lua
-- KEYS of each subject the requests of it
-- ARGV call_id window_ms, then of each subject its limit
-- A request that is refused leaves nothing. Gives whether it is taken, of which subject fewest may still come, how many those are, and in
-- how many ms the oldest that counts will be past the window.
-- include: clock
local call, window = ARGV[1], tonumber(ARGV[2])
local now = now_ms()
local used, tightest, is_taken = {}, 1, true
for i, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', digits(now - window))
  -- a clock that was set back must not refuse for as long as it was wrong
  redis.call('ZREMRANGEBYSCORE', key, digits(now + window), '+inf')
  used[i] = redis.call('ZCARD', key) - (redis.call('ZSCORE', key, call) and 1 or 0)
  if ARGV[i + 2] - used[i] < ARGV[tightest + 2] - used[tightest] then tightest = i end
  is_taken = is_taken and used[i] < tonumber(ARGV[i + 2])
end
if is_taken then
  for i, key in ipairs(KEYS) do
    redis.call('ZADD', key, 'NX', digits(now), call)
    redis.call('PEXPIRE', key, window)
    used[i] = used[i] + 1
  end
end
local limit = tonumber(ARGV[tightest + 2])
-- with a lower limit than before, several have to pass before the next may come
local place = math.max(used[tightest] - limit, 0)
local oldest = redis.call('ZRANGE', KEYS[tightest], place, place, 'WITHSCORES')
return { is_taken and 1 or 0, tightest - 1, math.max(limit - used[tightest], 0), math.max(tonumber(oldest[2]) + window - now, 0) }
