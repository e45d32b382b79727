DELETE FROM tenure.connector_fanout_daily WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tenure.connector_fanout_daily
    WHERE day < (
        SELECT ((coalesce($2, reached) - $1 * interval '1 microsecond')
            AT TIME ZONE 'UTC')::date
        FROM tenure.switchboard_clock WHERE only_row)
    ORDER BY day LIMIT 1000 FOR UPDATE SKIP LOCKED
)) RETURNING true
