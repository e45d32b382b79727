-- Lists the duties of a group that have been granted and not forgotten.
--
-- reply    their ids, escaped

return redis.call('HKEYS', root .. 'grants')
