-- Reads a group's document.
--
-- reply    {version, document}, or {} when there is none

local stored = redis.call('HMGET', root .. 'document', 'version', 'document')
if not stored[1] then return {} end
return stored
