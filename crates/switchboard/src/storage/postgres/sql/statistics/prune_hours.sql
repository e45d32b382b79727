-- Keeps hours that have not left a period yet: they are subtracted when they do.
DELETE FROM tenure.connector_stats_hourly WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tenure.connector_stats_hourly
    WHERE hour < (
        SELECT date_trunc('hour', least(p.since_7d,
            coalesce($2, c.reached) - $1 * interval '1 microsecond'), 'UTC')
        FROM tenure.connector_stats_progress p, tenure.switchboard_clock c
        WHERE p.only_row AND c.only_row)
    ORDER BY hour LIMIT 1000 FOR UPDATE SKIP LOCKED
)) RETURNING true
