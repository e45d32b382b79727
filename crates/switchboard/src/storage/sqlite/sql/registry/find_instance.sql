SELECT instance_id, state, error_message, uptime_s, started_at, first_seen_at, last_heartbeat_at,
    stopped_at, checkpoint_cursor, checkpoint_updated_at, capabilities, interval_micros,
    drift_micros, beats, late, resets, jumps, more, version, counter_messages_ingested,
    counter_messages_failed, counter_source_api_calls, counter_checkpoint_saves,
    counter_dedupe_accepted, last_sent_at, owed_messages_ingested, owed_messages_failed,
    owed_source_api_calls, owed_checkpoint_saves, owed_dedupe_accepted
FROM connector_instances
WHERE connector_type = ?1 AND endpoint_identity = ?2 AND instance_id = ?3
