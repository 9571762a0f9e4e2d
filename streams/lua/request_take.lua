#!lua
-- KEYS requests
-- ARGV call_id limit window_ms
-- A request that is refused leaves nothing. Gives whether it is taken, how many may still come, and in how many ms
-- the oldest that counts will be past the window.
-- include: clock
local call, limit, window = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', digits(now - window))
-- a clock that was set back must not refuse for as long as it was wrong
redis.call('ZREMRANGEBYSCORE', KEYS[1], digits(now + window), '+inf')
local used = redis.call('ZCARD', KEYS[1])
local is_taken = redis.call('ZSCORE', KEYS[1], call) ~= false
if not is_taken and used < limit then
  redis.call('ZADD', KEYS[1], digits(now), call)
  redis.call('PEXPIRE', KEYS[1], window)
  is_taken, used = true, used + 1
end
-- with a lower limit than before, several have to pass before the next may come
local oldest = redis.call('ZRANGE', KEYS[1], math.max(used - limit, 0), math.max(used - limit, 0), 'WITHSCORES')
return {is_taken and 1 or 0, math.max(limit - used, 0), math.max(tonumber(oldest[2]) + window - now, 0)}
