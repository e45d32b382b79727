-- The clock, with counts of connectors in the period $1, unsorted; one row even without connectors.
SELECT clock_timestamp(), s.* FROM (VALUES (true)) AS one(row) LEFT JOIN LATERAL (
    SELECT r.connector_type, r.endpoint_identity, r.last_heartbeat_at, r.interval_micros,
        coalesce(w.messages_ingested, 0), coalesce(w.messages_failed, 0)
    FROM tenure.connector_registry r
    LEFT JOIN tenure.connector_stats_window w ON w.connector_type = r.connector_type
        AND w.endpoint_identity = r.endpoint_identity AND w.period = $1
    WHERE r.archived_at IS NULL
) AS s ON true
