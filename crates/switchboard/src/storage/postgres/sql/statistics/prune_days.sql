-- Keeps days that have not left a period yet: they are subtracted when they do.
DELETE FROM tenure.connector_stats_daily WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tenure.connector_stats_daily
    WHERE day < (
        SELECT (least(p.since_30d, coalesce($2, c.reached)
            - $1 * interval '1 microsecond') AT TIME ZONE 'UTC')::date
        FROM tenure.connector_stats_progress p, tenure.switchboard_clock c
        WHERE p.only_row AND c.only_row)
    ORDER BY day LIMIT 1000 FOR UPDATE SKIP LOCKED
)) RETURNING true
