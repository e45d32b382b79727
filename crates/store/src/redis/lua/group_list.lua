-- Lists all groups ever used.
--
-- KEYS[1]  the marker          ARGV[1]  incarnation
-- KEYS[2]  the set of groups
-- reply    their names, escaped

return redis.call('SMEMBERS', KEYS[2])
