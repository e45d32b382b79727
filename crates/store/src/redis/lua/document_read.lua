-- Reads a group's document.
--
-- KEYS[1]  the marker          ARGV[1], ARGV[2]  incarnation, root
-- reply    {version, document}, or {} when there is none

local refusal = refused()
if refusal then return refusal end
local stored = redis.call('HMGET', root .. 'document', 'version', 'document')
if not stored[1] then return {} end
return stored
