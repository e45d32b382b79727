-- Sets the retention of histories and audit trails; history_trim applies it.
--
-- KEYS[1]  the marker          ARGV[1]  incarnation
-- ARGV[2]  (unused: the root)
-- ARGV[3]  history slots       ARGV[4]  audit entries
-- reply    1

redis.call('HSET', KEYS[1], 'history_slots', ARGV[3], 'audit_kept', ARGV[4])
return 1
