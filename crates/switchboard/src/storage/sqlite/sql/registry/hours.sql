SELECT hour, messages_ingested, messages_failed, source_api_calls, dedupe_accepted,
    heartbeat_count, healthy_count, degraded_count, error_count
FROM connector_stats_hourly
WHERE connector_type = ?1 AND endpoint_identity = ?2 AND hour >= ?3 ORDER BY hour
