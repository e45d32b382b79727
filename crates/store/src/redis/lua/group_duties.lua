-- The duties of a group that were ever granted.
--
-- reply    their ids, escaped

return redis.call('HKEYS', root .. 'grants')
