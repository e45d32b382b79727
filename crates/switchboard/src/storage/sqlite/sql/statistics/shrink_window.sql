-- Takes what was counted from the time ?2 on and before ?3 off the period ?1.
UPDATE connector_stats_window AS it SET
    messages_ingested = max(it.messages_ingested - gone.messages_ingested, 0),
    messages_failed = max(it.messages_failed - gone.messages_failed, 0)
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
    GROUP BY connector_type, endpoint_identity
) AS gone
WHERE it.connector_type = gone.connector_type AND it.endpoint_identity = gone.endpoint_identity
    AND it.period = ?1
