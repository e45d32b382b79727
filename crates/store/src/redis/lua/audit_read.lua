-- Reads a part of a group's audit trail, oldest first.
--
-- ARGV[3]  the first number to read
-- ARGV[4]  the maximum number of entries
-- reply    the entries as XRANGE returns them; an entry's number is the first part of its id

return redis.call('XRANGE', root .. 'audit', ARGV[3] .. '-0', '+', 'COUNT', ARGV[4])
