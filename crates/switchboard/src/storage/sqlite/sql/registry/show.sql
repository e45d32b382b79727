SELECT r.connector_type, r.endpoint_identity, r.instance_id, r.state, r.error_message, r.uptime_s,
    r.last_heartbeat_at, r.first_seen_at, r.registered_via, r.checkpoint_cursor,
    r.checkpoint_updated_at, r.archived_at, r.interval_micros, r.drift_micros, r.more, r.version,
    r.counter_messages_ingested, r.counter_messages_failed, r.counter_source_api_calls,
    r.counter_checkpoint_saves, r.counter_dedupe_accepted, d.messages_ingested, d.messages_failed,
    d.source_api_calls, d.dedupe_accepted, d.heartbeat_count, d.healthy_count, d.degraded_count,
    d.error_count
FROM connector_registry r LEFT JOIN connector_stats_daily d
    ON d.connector_type = r.connector_type AND d.endpoint_identity = r.endpoint_identity
        AND d.day = date(?1 / 1000000, 'unixepoch')
WHERE r.connector_type = ?2 AND r.endpoint_identity = ?3
