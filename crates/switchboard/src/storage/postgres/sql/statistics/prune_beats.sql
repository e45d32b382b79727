-- Deletes heartbeats in the default partition. $1 microseconds to keep, $2 the time or null.
DELETE FROM tenure.connector_heartbeat_log_default WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tenure.connector_heartbeat_log_default
    WHERE received_at < (
            SELECT date_trunc('day',
                coalesce($2, reached) - $1 * interval '1 microsecond', 'UTC')
            FROM tenure.switchboard_clock WHERE only_row)
        AND received_at < (
            SELECT beats_since FROM tenure.connector_stats_progress WHERE only_row)
        AND id <= (SELECT counted_id FROM tenure.connector_stats_progress WHERE only_row)
    ORDER BY received_at LIMIT 1000 FOR UPDATE SKIP LOCKED
)) RETURNING true
