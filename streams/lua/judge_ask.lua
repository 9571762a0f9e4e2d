-- KEYS queue wake_ups turns shares
-- ARGV job_id job expires_ms max_depth most_wake_ups key keep_s
-- include: clock
local queue, wake_ups, turns, shares = unpack(KEYS)
local job_id, job, expires_ms, max_depth, most_wake_ups, key, keep_s = unpack(ARGV)
max_depth, most_wake_ups = tonumber(max_depth), tonumber(most_wake_ups)

local job_key = 'arq:job:' .. job_id
local depth = redis.call('ZCARD', queue)
if depth >= max_depth then return 'QUEUE' end
if redis.call('EXISTS', job_key) == 0 then
  local waiting = redis.call('ZCARD', turns)
  -- nobody waits; or what is in turn went off the queue another way, by arq's own worker
  if waiting == 0 or waiting > depth then
    redis.call('DEL', turns)
    redis.call('DEL', shares)
  end
  local c = redis.call('HMGET', shares, 'now', 'key:' .. key)
  local present, next_of_key = tonumber(c[1] or 0), tonumber(c[2] or 0)
  if next_of_key - present > max_depth - depth then return 'KEY' end
  local turn = math.max(present, next_of_key)
  redis.call('HSET', shares, 'now', present, 'key:' .. key, turn + 1)
  redis.call('ZADD', turns, turn, job_id)
  local now, micros = now_ms()
  -- not each time: they live long
  if waiting == 0 or micros % 16 == 0 then
    redis.call('EXPIRE', turns, keep_s)
    redis.call('EXPIRE', shares, keep_s)
  end
  redis.call('PSETEX', job_key, expires_ms, job)
  redis.call('ZADD', queue, digits(now), job_id)
end
if redis.call('RPUSH', wake_ups, '1') > most_wake_ups then
  redis.call('LTRIM', wake_ups, -most_wake_ups, -1)
end
redis.call('EXPIRE', wake_ups, 5)
return 'OK'
