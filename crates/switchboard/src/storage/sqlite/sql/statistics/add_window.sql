-- Parameters as in count.sql. Adds to the period ?6, which began at the time ?7.
INSERT INTO connector_stats_window
    (connector_type, endpoint_identity, period, messages_ingested, messages_failed)
SELECT connector_type, endpoint_identity, ?6,
    CAST(min(total(grown(delta_messages_ingested, received_at)), 9007199254740991) AS INTEGER),
    CAST(min(total(grown(delta_messages_failed, received_at)), 9007199254740991) AS INTEGER)
FROM (
    SELECT * FROM connector_heartbeat_log WHERE ?3 IS NULL AND id > ?1 AND id <= ?2
    UNION ALL
    SELECT * FROM connector_heartbeat_log WHERE connector_type = ?3 AND endpoint_identity = ?4
        AND received_at >= ?5 AND +id > ?1 AND +id <= ?2
)
WHERE NOT late AND received_at >= ?7
GROUP BY 1, 2
ON CONFLICT (connector_type, endpoint_identity, period) DO UPDATE SET
    messages_ingested = min(messages_ingested + excluded.messages_ingested, 9007199254740991),
    messages_failed = min(messages_failed + excluded.messages_failed, 9007199254740991)
