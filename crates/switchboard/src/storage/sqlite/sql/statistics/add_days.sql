-- Parameters as in count.sql.
INSERT INTO connector_stats_daily (connector_type, endpoint_identity, day, messages_ingested,
    messages_failed, source_api_calls, dedupe_accepted, heartbeat_count, healthy_count,
    degraded_count, error_count, uptime_pct)
SELECT connector_type, endpoint_identity, date(received_at / 1000000, 'unixepoch'),
    CAST(min(total(grown(delta_messages_ingested, received_at)), 9007199254740991) AS INTEGER),
    CAST(min(total(grown(delta_messages_failed, received_at)), 9007199254740991) AS INTEGER),
    CAST(min(total(grown(delta_source_api_calls, received_at)), 9007199254740991) AS INTEGER),
    CAST(min(total(grown(delta_dedupe_accepted, received_at)), 9007199254740991) AS INTEGER),
    count(*), sum(state = 'healthy'), sum(state = 'degraded'), sum(state = 'error'),
    round(100.0 * sum(state = 'healthy') / count(*), 2)
FROM (
    SELECT * FROM connector_heartbeat_log WHERE ?3 IS NULL AND id > ?1 AND id <= ?2
    UNION ALL
    SELECT * FROM connector_heartbeat_log WHERE connector_type = ?3 AND endpoint_identity = ?4
        AND received_at >= ?5 AND +id > ?1 AND +id <= ?2
)
WHERE NOT late
GROUP BY 1, 2, 3
ON CONFLICT (connector_type, endpoint_identity, day) DO UPDATE SET
    messages_ingested = min(messages_ingested + excluded.messages_ingested, 9007199254740991),
    messages_failed = min(messages_failed + excluded.messages_failed, 9007199254740991),
    source_api_calls = min(source_api_calls + excluded.source_api_calls, 9007199254740991),
    dedupe_accepted = min(dedupe_accepted + excluded.dedupe_accepted, 9007199254740991),
    heartbeat_count = heartbeat_count + excluded.heartbeat_count,
    healthy_count = healthy_count + excluded.healthy_count,
    degraded_count = degraded_count + excluded.degraded_count,
    error_count = error_count + excluded.error_count,
    uptime_pct = round(100.0 * (healthy_count + excluded.healthy_count)
        / (heartbeat_count + excluded.heartbeat_count), 2)
