#!lua flags=allow-oom
-- KEYS workers primary
-- ARGV role:name..
-- include: clock
local workers, primary_key = KEYS[1], KEYS[2]
local now = digits(now_ms())
for _, process in ipairs(ARGV) do redis.call('HSET', workers, process, now) end
-- a key of another kind says nothing
local primary = redis.pcall('GET', primary_key)
if type(primary) == 'string' and string.find(primary, 'old') then return 'OLD' end
return 'OK'
