DELETE FROM tenure.auth_failure WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tenure.auth_failure WHERE window_ends_at <= (
        SELECT reached FROM tenure.switchboard_clock WHERE only_row)
    ORDER BY window_ends_at LIMIT 1000 FOR UPDATE SKIP LOCKED
)) RETURNING true
