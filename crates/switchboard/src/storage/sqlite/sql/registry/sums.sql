SELECT r.connector_type, r.endpoint_identity, r.last_heartbeat_at, r.interval_micros,
    coalesce(w.messages_ingested, 0), coalesce(w.messages_failed, 0)
FROM connector_registry r LEFT JOIN connector_stats_window w
    ON w.connector_type = r.connector_type AND w.endpoint_identity = r.endpoint_identity
        AND w.period = ?1
WHERE r.archived_at IS NULL ORDER BY r.connector_type, r.endpoint_identity
