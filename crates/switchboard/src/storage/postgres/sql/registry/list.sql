-- A page of connectors with what they did today. The clock stands in every row; without connectors
-- it is the only one.
SELECT clock_timestamp(), page.* FROM (VALUES (true)) AS one(row) LEFT JOIN LATERAL (
    SELECT r.connector_type, r.endpoint_identity, r.instance_id, r.version, r.state,
        r.error_message, r.uptime_s, r.last_heartbeat_at, r.first_seen_at, r.registered_via,
        r.checkpoint_cursor, r.checkpoint_updated_at, r.archived_at, r.interval_micros,
        r.drift_micros, r.counter_messages_ingested, r.counter_messages_failed,
        r.counter_source_api_calls, r.counter_checkpoint_saves, r.counter_dedupe_accepted,
        d.messages_ingested, d.messages_failed, d.source_api_calls, d.dedupe_accepted,
        d.heartbeat_count, d.healthy_count, d.degraded_count, d.error_count
    FROM tenure.connector_registry r
    LEFT JOIN tenure.connector_stats_daily d ON d.connector_type = r.connector_type
        AND d.endpoint_identity = r.endpoint_identity
        AND d.day = (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date)
    WHERE (r.connector_type, r.endpoint_identity) > ($1, $2) AND (r.archived_at IS NOT NULL) = $3
    ORDER BY r.connector_type, r.endpoint_identity LIMIT $4
) AS page ON true
