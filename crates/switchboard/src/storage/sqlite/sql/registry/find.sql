SELECT connector_type, endpoint_identity, instance_id, state, error_message, uptime_s,
    last_heartbeat_at, first_seen_at, registered_via, checkpoint_cursor,
    checkpoint_updated_at, archived_at, interval_micros, drift_micros, more, version,
    counter_messages_ingested, counter_messages_failed, counter_source_api_calls,
    counter_checkpoint_saves, counter_dedupe_accepted
FROM connector_registry WHERE connector_type = ?1 AND endpoint_identity = ?2
