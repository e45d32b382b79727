SELECT day::timestamp AT TIME ZONE 'UTC', messages_ingested, messages_failed, source_api_calls,
    dedupe_accepted, heartbeat_count, healthy_count, degraded_count, error_count
FROM tenure.connector_stats_daily
WHERE connector_type = $1 AND endpoint_identity = $2
    AND day >= ($3 AT TIME ZONE 'UTC')::date
ORDER BY day
