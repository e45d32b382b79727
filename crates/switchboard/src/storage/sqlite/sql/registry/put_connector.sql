UPDATE connector_registry SET archived_at = NULL, (instance_id, state, error_message, uptime_s,
    last_heartbeat_at, checkpoint_cursor, checkpoint_updated_at, interval_micros, drift_micros,
    more, version, counter_messages_ingested, counter_messages_failed, counter_source_api_calls,
    counter_checkpoint_saves, counter_dedupe_accepted)
= (:instance_id, :state, :error_message, :uptime_s, :last_heartbeat_at, :checkpoint_cursor,
    :checkpoint_updated_at, :interval_micros, :drift_micros, :more, :version,
    :counter_messages_ingested, :counter_messages_failed, :counter_source_api_calls,
    :counter_checkpoint_saves, :counter_dedupe_accepted)
WHERE connector_type = :connector_type AND endpoint_identity = :endpoint_identity
