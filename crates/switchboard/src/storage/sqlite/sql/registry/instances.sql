SELECT instance_id, state, error_message, uptime_s, started_at, first_seen_at, last_heartbeat_at,
    stopped_at, checkpoint_cursor, checkpoint_updated_at, capabilities, interval_micros,
    drift_micros, beats, late, resets, jumps, more, version, counter_messages_ingested,
    counter_messages_failed, counter_source_api_calls, counter_checkpoint_saves,
    counter_dedupe_accepted
FROM connector_instances
WHERE connector_type = ?1 AND endpoint_identity = ?2
ORDER BY last_heartbeat_at DESC, instance_id LIMIT 100
