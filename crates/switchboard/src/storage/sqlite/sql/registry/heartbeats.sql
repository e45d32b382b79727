SELECT id, instance_id, state, error_message, uptime_s, late, received_at, sent_at, more,
    counter_messages_ingested, counter_messages_failed, counter_source_api_calls,
    counter_checkpoint_saves, counter_dedupe_accepted, delta_messages_ingested,
    delta_messages_failed, delta_source_api_calls, delta_checkpoint_saves, delta_dedupe_accepted
FROM connector_heartbeat_log
WHERE connector_type = ?1 AND endpoint_identity = ?2 AND (received_at, id) < (?3, ?4)
    AND (NOT ?6 OR state <> 'healthy')
ORDER BY received_at DESC, id DESC LIMIT ?5
