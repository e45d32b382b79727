-- Acknowledged outcomes stay until they are counted.
DELETE FROM tenure.inbox_outcome WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tenure.inbox_outcome
    WHERE reported_at < (
            SELECT coalesce($2, reached) - $1 * interval '1 microsecond'
            FROM tenure.switchboard_clock WHERE only_row)
        AND (arrival IS NULL OR arrival <= (
            SELECT counted_id FROM tenure.connector_stats_progress WHERE only_row))
    ORDER BY reported_at LIMIT 1000 FOR UPDATE SKIP LOCKED
)) RETURNING true
