-- One row per instance, each with the connector and its counts of today.
SELECT clock_timestamp(), r.connector_type, r.endpoint_identity, r.instance_id, r.state,
    r.error_message, r.uptime_s, r.last_heartbeat_at, r.first_seen_at, r.registered_via,
    r.checkpoint_cursor, r.checkpoint_updated_at, r.archived_at, r.interval_micros, r.drift_micros,
    r.more, r.version, r.counter_messages_ingested, r.counter_messages_failed,
    r.counter_source_api_calls, r.counter_checkpoint_saves, r.counter_dedupe_accepted,
    d.messages_ingested, d.messages_failed, d.source_api_calls, d.dedupe_accepted,
    d.heartbeat_count, d.healthy_count, d.degraded_count, d.error_count, i.instance_id, i.state,
    i.error_message, i.uptime_s, i.started_at, i.first_seen_at, i.last_heartbeat_at, i.stopped_at,
    i.checkpoint_cursor, i.checkpoint_updated_at, i.capabilities, i.interval_micros, i.drift_micros,
    i.beats, i.late, i.resets, i.jumps, i.more, i.version, i.counter_messages_ingested,
    i.counter_messages_failed, i.counter_source_api_calls, i.counter_checkpoint_saves,
    i.counter_dedupe_accepted
FROM tenure.connector_registry r
LEFT JOIN tenure.connector_stats_daily d ON d.connector_type = r.connector_type
    AND d.endpoint_identity = r.endpoint_identity
    AND d.day = (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date)
LEFT JOIN LATERAL (
    SELECT x.* FROM tenure.connector_instances x
    WHERE x.connector_type = r.connector_type AND x.endpoint_identity = r.endpoint_identity
    ORDER BY x.last_heartbeat_at DESC, x.instance_id LIMIT 100
) AS i ON true
WHERE r.connector_type = $1 AND r.endpoint_identity = $2
ORDER BY i.last_heartbeat_at DESC, i.instance_id
