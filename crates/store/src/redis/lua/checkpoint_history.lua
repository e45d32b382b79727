-- Reads the checkpoints of a duty that are still kept, newest first.
--
-- KEYS[1]  the marker          ARGV[1]  incarnation
-- KEYS[2]  the history
-- reply    the entries as checkpoint_commit has packed them

return redis.call('LRANGE', KEYS[2], 0, HISTORY_SLOTS - 1)
