-- KEYS audit trimmed
-- include: by_name
local stream = by_name(redis.call('XINFO', 'STREAM', KEYS[1]))
local away = stream['entries-added'] - stream.length
return away - (redis.call('GET', KEYS[2]) or away)
