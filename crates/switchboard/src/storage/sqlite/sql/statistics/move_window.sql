-- Sets the period ?1 of the connector ?4, ?5, or of all, to the sum of the hours or days from the
-- time ?2 until before ?3. If ?6, subtracts that sum instead.
INSERT INTO connector_stats_window
    (connector_type, endpoint_identity, period, messages_ingested, messages_failed)
SELECT connector_type, endpoint_identity, ?1,
    CAST(min(total(messages_ingested), 9007199254740991) AS INTEGER),
    CAST(min(total(messages_failed), 9007199254740991) AS INTEGER)
FROM (
    SELECT connector_type, endpoint_identity, messages_ingested, messages_failed
    FROM connector_stats_hourly WHERE ?1 <> '30d' AND hour >= ?2 AND hour < ?3
    UNION ALL
    SELECT connector_type, endpoint_identity, messages_ingested, messages_failed
    FROM connector_stats_daily
    WHERE ?1 = '30d' AND day >= date(?2 / 1000000, 'unixepoch')
        AND day < date(?3 / 1000000, 'unixepoch')
)
WHERE (?4 IS NULL OR (connector_type = ?4 AND endpoint_identity = ?5))
    AND (NOT ?6 OR (connector_type, endpoint_identity, ?1) IN (
        SELECT connector_type, endpoint_identity, period FROM connector_stats_window))
GROUP BY connector_type, endpoint_identity
ON CONFLICT (connector_type, endpoint_identity, period) DO UPDATE SET
    messages_ingested = iif(?6, max(messages_ingested - excluded.messages_ingested, 0),
        excluded.messages_ingested),
    messages_failed = iif(?6, max(messages_failed - excluded.messages_failed, 0),
        excluded.messages_failed)
