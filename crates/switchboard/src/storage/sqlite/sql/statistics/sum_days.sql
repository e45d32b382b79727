SELECT coalesce(sum(messages_ingested), 0), coalesce(sum(messages_failed), 0),
    coalesce(sum(source_api_calls), 0), coalesce(sum(dedupe_accepted), 0)
FROM connector_stats_daily WHERE connector_type = ?1 AND endpoint_identity = ?2
    AND day >= date(?3 / 1000000, 'unixepoch')
