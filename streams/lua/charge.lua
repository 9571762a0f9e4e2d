-- KEYS memory
-- ARGV call_id key bytes
-- include: charge
local memory, call_id, key, bytes = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
if has_share(memory, key, bytes) then return 'KEY' end
take(memory, call_id, key, bytes)
return 'OK'
