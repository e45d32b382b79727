-- Replaces a group's document if its version is still the expected one.
--
-- KEYS[2]  the set of groups
-- ARGV[3]  the group, escaped  ARGV[4]  the expected version
-- ARGV[5]  the document
-- reply    {1, the new version}, or {0, the stored version}

local key = root .. 'document'
local stored = count(redis.call('HGET', key, 'version'))
if not stored then return damaged(key) end
if stored ~= tonumber(ARGV[4]) then return { 0, stored } end
if stored == LARGEST then return redis.error_reply('EXHAUSTED no version is left for ' .. key) end
redis.call('SISMEMBER', KEYS[2], ARGV[3])
redis.call('HSET', key, 'version', decimal(stored + 1), 'document', ARGV[5])
redis.call('SADD', KEYS[2], ARGV[3])
hint()
return { 1, stored + 1 }
