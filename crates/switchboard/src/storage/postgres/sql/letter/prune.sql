DELETE FROM tenure.dead_letter WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tenure.dead_letter
    WHERE resolved_at < (
        SELECT reached - $1 * interval '1 microsecond'
        FROM tenure.switchboard_clock WHERE only_row)
    ORDER BY resolved_at LIMIT 1000 FOR UPDATE SKIP LOCKED
)) RETURNING true
