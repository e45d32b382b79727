-- The duties of a group that were ever granted.
--
-- KEYS[1]  the marker          ARGV[1], ARGV[2]  incarnation, root
-- reply    their ids, escaped

local refusal = refused()
if refusal then return refusal end
return redis.call('HKEYS', root .. 'grants')
