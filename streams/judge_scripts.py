"""The Lua scripts of the judge queue, which is arq's, with round-robin turns for API keys.

Both touch shard 00 and the calls that questions are of. Keys come from `streams.layout`; those of a
call are made of its id.
"""

JUDGE_ASK = """
-- KEYS queue wake_ups turns shares; ARGV job_key job_id job expires_ms max_depth most_wake_ups key
-- keep_s
local depth = redis.call('ZCARD', KEYS[1])
if depth >= tonumber(ARGV[5]) then return 'QUEUE' end
if redis.call('EXISTS', ARGV[1]) == 0 then
  local waiting = redis.call('ZCARD', KEYS[3])
  -- nobody waits; or what is in turn went off the queue another way, by arq's own worker
  if waiting == 0 or waiting > depth then
    redis.call('DEL', KEYS[3])
    redis.call('DEL', KEYS[4])
  end
  local turns = redis.call('HMGET', KEYS[4], 'now', 'key:' .. ARGV[7])
  local now, own = tonumber(turns[1] or 0), tonumber(turns[2] or 0)
  if own - now > tonumber(ARGV[5]) - depth then return 'KEY' end
  local turn = math.max(now, own)
  redis.call('HSET', KEYS[4], 'now', now, 'key:' .. ARGV[7], turn + 1)
  redis.call('ZADD', KEYS[3], turn, ARGV[2])
  local t = redis.call('TIME')
  -- not each time: they live long
  if waiting == 0 or t[2] % 16 == 0 then
    redis.call('EXPIRE', KEYS[3], ARGV[8])
    redis.call('EXPIRE', KEYS[4], ARGV[8])
  end
  redis.call('PSETEX', ARGV[1], ARGV[4], ARGV[3])
  redis.call('ZADD', KEYS[1], string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)), ARGV[2])
end
if redis.call('RPUSH', KEYS[2], '1') > tonumber(ARGV[6])
  then redis.call('LTRIM', KEYS[2], -tonumber(ARGV[6]), -1) end
redis.call('EXPIRE', KEYS[2], 5)
return 'OK'
"""
"""Put a job of arq's on the judge queue, once, and wake a judge.

Keys of clients take turns (start-time fair queueing): a question's turn is the one after its key's
last, or the present one; lower turns are taken first. So a key that asks a thousand questions is as
far ahead as any other with its next. A key may have as many waiting as there is room left, so that
however many fill the queue, each leaves room for one more. arq's queue itself stays in order of
time.
"""

JUDGE_TURN = """#!lua flags=allow-oom
-- KEYS queue wake_ups turns shares [facts call]; ARGV mine take('1'|'0'|'again') woken('1'|'0')
-- mark_ms beat_ms
-- most_tries retry_s look [job_id channel field value]
-- allow-oom: a call whose question has no answer keeps its memory longest
local function key_of(call, kind) return string.format('sluice:{%02d}:%s:%s',
  tonumber(string.sub(call, -2), 16), kind, call) end
local function question(job) return string.match(job, '^([0-9a-f-]+%x%x):(%d+):(%d+):%d+$') end
local function beat_of(call, block, step) return key_of(call, 'beat') .. ':' .. block .. ':' .. step
  end
local function off(job)
  redis.call('ZREM', KEYS[1], job)
  redis.call('DEL', 'arq:job:' .. job, 'arq:in-progress:' .. job, 'arq:retry:' .. job)
end
local stored = 1
if ARGV[9] then
  -- where the call's facts are spoilt nobody can answer it; the judge goes on
  local left = redis.call('PTTL', KEYS[6])
  stored = left == -2 and 0 or redis.pcall('HSETNX', KEYS[5], ARGV[11], ARGV[12])
  if type(stored) == 'table' then stored = 0 end
  redis.call('PUBLISH', ARGV[10], ARGV[11])
  if left > 0 then redis.call('PEXPIRE', KEYS[5], left) end
  redis.call('DEL', beat_of(question(ARGV[9])))
  off(ARGV[9])
end
if ARGV[2] == '0' then return {stored} end
local function taken(job, only_mine)
  local mark = redis.call('GET', 'arq:in-progress:' .. job)
  -- by us: the answer to this very script got lost
  if mark and mark ~= ARGV[1] or only_mine and not mark then return false end
  local call, block, step = question(job)
  if not call then return {stored, job} end
  local text = redis.call('GET', 'arq:job:' .. job)
  local tries = redis.call('INCR', 'arq:retry:' .. job)
  redis.call('EXPIRE', 'arq:retry:' .. job, ARGV[7])
  local beat = beat_of(call, block, step)
  if not text or tries > tonumber(ARGV[6]) or redis.pcall('HEXISTS', key_of(call, 'facts'), 'j:' ..
    block .. ':' .. step) == 1 then
    return off(job)
  end
  redis.call('SET', beat, ARGV[1], 'NX', 'PX', ARGV[5])
  if redis.call('MGET', beat)[1] ~= ARGV[1] then return off(job) end
  redis.call('PSETEX', 'arq:in-progress:' .. job, ARGV[4], ARGV[1])
  return {stored, job, text, tries, redis.call('PTTL', 'arq:job:' .. job)}
end
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
local function in_turn()
  while true do
    local next = redis.call('ZPOPMIN', KEYS[3])
    if #next == 0 then return nil end
    local found = taken(next[1])
    if found then
      if redis.call('EXISTS', KEYS[4]) == 1 and tonumber(next[2]) >= 0
        then redis.call('HSET', KEYS[4], 'now', next[2]) end
      return found
    end
  end
end
local function in_time(only_mine)
  local start, page = 0, 32
  while start < tonumber(ARGV[8]) do
    local queued = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', start, page)
    for _, job in ipairs(queued) do
      local found = taken(job, only_mine)
      if found then
        redis.call('ZREM', KEYS[3], job)
        return found
      end
      -- those taken off made the rest move up
      if found == false then start = start + 1 end
    end
    if #queued < page then break end
  end
end
local found = ARGV[2] == 'again' and in_time(true)
-- what arq's own client put there has no turn: now and then the oldest of all is next
if not found and t[2] % 16 == 0 then found = in_time() end
found = found or in_turn() or in_time()
if not found then return {stored} end
-- a judge that took a job without having been woken takes a wake-up with it, else another is woken
-- for nothing
if ARGV[3] == '0' then redis.pcall('LPOP', KEYS[2]) end
return found
"""
"""Store a judge's last answer and take its job off the queue, then take the job whose turn it is,
with the first heartbeat.

One round trip a judgement; with the answer, arq's `run_job`, the heartbeat and the end of the job
on their own there were four. Returns whether the answer was the first (1 or 0), and id, text,
number of tries and what is left of the life of the job, in ms, if there is one: as long as an
answer is of use, on Redis' clock. Where the question has its answer, another judge works on it (no
model is asked twice), the text is gone or it was tried too often, the job goes. An id that is not
ours comes without the rest, to be turned away.
"""
