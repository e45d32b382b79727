-- Deletes keys not seen for $1 microseconds and an hour, the precision of last_seen_at.
DELETE FROM tenure.ingest_dedupe WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tenure.ingest_dedupe
    WHERE last_seen_at < (
        SELECT reached - $1 * interval '1 microsecond' - interval '1 hour'
        FROM tenure.switchboard_clock WHERE only_row)
    ORDER BY last_seen_at LIMIT 1000 FOR UPDATE SKIP LOCKED
)) RETURNING true
