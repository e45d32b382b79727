-- Adds up the period ?1, from the time ?2 on and before ?3: of the connector ?4, ?5, or of all.
INSERT INTO connector_stats_window
    (connector_type, endpoint_identity, period, messages_ingested, messages_failed)
SELECT connector_type, endpoint_identity, ?1, messages_ingested, messages_failed
FROM (
    SELECT connector_type, endpoint_identity,
        CAST(min(total(messages_ingested), 9007199254740991) AS INTEGER) AS messages_ingested,
        CAST(min(total(messages_failed), 9007199254740991) AS INTEGER) AS messages_failed
    FROM (
        SELECT connector_type, endpoint_identity, messages_ingested, messages_failed
        FROM connector_stats_hourly WHERE ?1 <> '30d' AND hour >= ?2 AND hour < ?3
        UNION ALL
        SELECT connector_type, endpoint_identity, messages_ingested, messages_failed
        FROM connector_stats_daily
        WHERE ?1 = '30d' AND day >= date(?2 / 1000000, 'unixepoch')
            AND day < date(?3 / 1000000, 'unixepoch')
    )
    WHERE ?4 IS NULL OR (connector_type = ?4 AND endpoint_identity = ?5)
    GROUP BY connector_type, endpoint_identity
)
