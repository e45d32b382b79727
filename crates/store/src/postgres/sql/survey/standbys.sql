-- The state of each standby that is connected; null when the user may not see it.
-- A backup that is being taken and a subscriber are no standbys: nobody promotes them.
SELECT r.sync_state
FROM pg_catalog.pg_stat_replication r
WHERE r.state IS DISTINCT FROM 'backup'
  AND NOT EXISTS (
      SELECT FROM pg_catalog.pg_replication_slots s
      WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
