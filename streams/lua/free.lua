#!lua flags=allow-oom
-- KEYS memory, then of each call: body
-- ARGV call_id..
-- include: give_back
for i, call in ipairs(ARGV) do
  redis.call('UNLINK', KEYS[i + 1])
  pcall(give_back, KEYS[1], call)
end
return 'OK'
