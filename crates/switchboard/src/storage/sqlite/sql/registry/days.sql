SELECT unixepoch(day) * 1000000, messages_ingested, messages_failed, source_api_calls,
    dedupe_accepted, heartbeat_count, healthy_count, degraded_count, error_count
FROM connector_stats_daily
WHERE connector_type = ?1 AND endpoint_identity = ?2
    AND day >= date(?3 / 1000000, 'unixepoch')
ORDER BY day
