#!lua flags=allow-oom
-- KEYS queue wake_ups turns shares, with an answer: facts stream
-- ARGV token take ('no' | 'first' | 'again') was_woken mark_ms beat_ms max_tries retry_s max_depth,
--      with an answer: job_id channel field value
-- allow-oom: a call whose question has no answer keeps its memory longest
-- include: clock
local queue, wake_ups, turns, shares, facts, stream = unpack(KEYS)
local token, take, was_woken, mark_ms, beat_ms, max_tries, retry_s, max_depth = unpack(ARGV, 1, 8)
local answered, channel, field, value = unpack(ARGV, 9)
max_tries, max_depth = tonumber(max_tries), tonumber(max_depth)

local function key_of(call, kind)
  return string.format('sluice:{%02d}:%s:%s', tonumber(string.sub(call, -2), 16), kind, call)
end
local function question(job) return string.match(job, '^([0-9a-f-]+%x%x):(%d+):(%d+):%d+$') end
local function beat_of(call, block, step) return key_of(call, 'beat') .. ':' .. block .. ':' .. step end
local function take_away(job)
  redis.call('ZREM', queue, job)
  redis.call('DEL', 'arq:job:' .. job, 'arq:in-progress:' .. job, 'arq:retry:' .. job)
end

local stored = 1
if answered then
  -- where the call's facts are spoilt nobody can answer it; the judge goes on
  local left = redis.call('PTTL', stream)
  stored = left == -2 and 0 or redis.pcall('HSETNX', facts, field, value)
  if type(stored) == 'table' then stored = 0 end
  redis.call('PUBLISH', channel, field)
  if left > 0 then redis.call('PEXPIRE', facts, left) end
  redis.call('DEL', beat_of(question(answered)))
  take_away(answered)
end
if take == 'no' then return {stored} end

local function taken(job, is_again)
  local mark = redis.call('GET', 'arq:in-progress:' .. job)
  -- by us: the answer to this very script got lost
  if mark and mark ~= token or is_again and not mark then return false end
  local call, block, step = question(job)
  if not call then return {stored, job} end
  local text = redis.call('GET', 'arq:job:' .. job)
  local tries = redis.call('INCR', 'arq:retry:' .. job)
  redis.call('EXPIRE', 'arq:retry:' .. job, retry_s)
  if not text or tries > max_tries
    or redis.pcall('HEXISTS', key_of(call, 'facts'), 'j:' .. block .. ':' .. step) == 1 then
    return take_away(job)
  end
  local beat = beat_of(call, block, step)
  redis.call('SET', beat, token, 'NX', 'PX', beat_ms)
  if redis.call('MGET', beat)[1] ~= token then return take_away(job) end
  redis.call('PSETEX', 'arq:in-progress:' .. job, mark_ms, token)
  return {stored, job, text, tries, redis.call('PTTL', 'arq:job:' .. job)}
end
local now, micros = now_ms()
local function in_turn()
  while true do
    local first = redis.call('ZPOPMIN', turns)
    if #first == 0 then return nil end
    local found = taken(first[1])
    if found then
      if redis.call('EXISTS', shares) == 1 and tonumber(first[2]) >= 0 then
        redis.call('HSET', shares, 'now', first[2])
      end
      return found
    end
  end
end
local function in_time(is_again)
  local start, page = 0, 32
  while start < max_depth do
    local queued = redis.call('ZRANGEBYSCORE', queue, '-inf', digits(now), 'LIMIT', start, page)
    for _, job in ipairs(queued) do
      local found = taken(job, is_again)
      if found then
        redis.call('ZREM', turns, job)
        return found
      end
      -- those taken off made the rest move up
      if found == false then start = start + 1 end
    end
    if #queued < page then break end
  end
end
local found = take == 'again' and in_time(true)
-- what arq's own client put there has no turn: now and then the oldest of all is next
if not found and micros % 16 == 0 then found = in_time() end
found = found or in_turn() or in_time()
if not found then return {stored} end
-- a judge that took a job without having been woken takes a wake-up with it, else another is woken
-- for nothing
if was_woken == '0' then redis.pcall('LPOP', wake_ups) end
return found
