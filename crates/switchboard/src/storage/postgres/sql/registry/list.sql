-- The clock, with a page of connectors and their counts of today; one row even without connectors.
SELECT clock_timestamp(), r.connector_type, r.endpoint_identity, r.instance_id, r.state,
    r.error_message, r.uptime_s, r.last_heartbeat_at, r.first_seen_at, r.registered_via,
    r.checkpoint_cursor, r.checkpoint_updated_at, r.archived_at, r.interval_micros, r.drift_micros,
    r.more, r.version, r.counter_messages_ingested, r.counter_messages_failed,
    r.counter_source_api_calls, r.counter_checkpoint_saves, r.counter_dedupe_accepted,
    d.messages_ingested, d.messages_failed, d.source_api_calls, d.dedupe_accepted,
    d.heartbeat_count, d.healthy_count, d.degraded_count, d.error_count
FROM (VALUES (true)) AS one(row)
LEFT JOIN LATERAL (
    SELECT * FROM tenure.connector_registry x
    WHERE (x.connector_type, x.endpoint_identity) > ($1, $2) AND (x.archived_at IS NOT NULL) = $3
        AND ($5 IS NULL OR x.endpoint_identity = $5)
    ORDER BY x.connector_type, x.endpoint_identity LIMIT $4
) AS r ON true
LEFT JOIN LATERAL (
    SELECT * FROM tenure.connector_stats_daily x
    WHERE x.connector_type = r.connector_type AND x.endpoint_identity = r.endpoint_identity
        AND x.day = (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date) OFFSET 0
) AS d ON true
ORDER BY r.connector_type, r.endpoint_identity
