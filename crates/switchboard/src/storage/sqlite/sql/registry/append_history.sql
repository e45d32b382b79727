INSERT INTO connector_heartbeat_log (connector_type, endpoint_identity, instance_id, state,
    error_message, uptime_s, late, received_at, sent_at, more, counter_messages_ingested,
    counter_messages_failed, counter_source_api_calls, counter_checkpoint_saves,
    counter_dedupe_accepted, delta_messages_ingested, delta_messages_failed, delta_source_api_calls,
    delta_checkpoint_saves, delta_dedupe_accepted)
VALUES (:connector_type, :endpoint_identity, :instance_id, :state, :error_message, :uptime_s, :late,
    :received_at, :sent_at, :more, :counter_messages_ingested, :counter_messages_failed,
    :counter_source_api_calls, :counter_checkpoint_saves, :counter_dedupe_accepted,
    :delta_messages_ingested, :delta_messages_failed, :delta_source_api_calls,
    :delta_checkpoint_saves, :delta_dedupe_accepted)
