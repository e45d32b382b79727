-- State of each connected standby; null if the user may not see it.
-- A logical subscriber is not a standby: nobody promotes it.
SELECT r.sync_state
FROM pg_catalog.pg_stat_replication r
WHERE NOT EXISTS (
    SELECT FROM pg_catalog.pg_replication_slots s
    WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
