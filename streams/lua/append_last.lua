#!lua flags=allow-oom
-- KEYS stream of the call
-- ARGV channel, then of each entry: id blob hint
-- allow-oom: the entries that end a call must go in though Redis is full, because only its end
-- gives back what it takes
-- include: rows
local stream, channel = KEYS[1], ARGV[1]
for i = 1, (#ARGV - 1) / 3 do
  local id, blob, hint = row(i, 1, 3)
  local outcome = redis.pcall('XADD', stream, 'NOMKSTREAM', id, 'b', blob)
  if not outcome then return 'GONE' end
  if type(outcome) == 'table' and outcome.err
    and not string.find(outcome.err, 'equal or smaller', 1, true) then
    return outcome
  end
  redis.call('PUBLISH', channel, hint)
end
return 'OK'
