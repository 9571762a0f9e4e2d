#!lua
-- KEYS account accounts
-- ARGV gen new_gen ttl_ms, then pairs: field, by how much
-- Brings an account to what the record says, unless another did since it was looked at.
if (redis.call('HGET', KEYS[1], 'gen') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'gen', ARGV[2])
for i = 4, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SADD', KEYS[2], KEYS[1])
return 1
