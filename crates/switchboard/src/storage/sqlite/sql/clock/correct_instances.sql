UPDATE connector_instances SET last_heartbeat_at = ?1, first_seen_at = min(first_seen_at, ?1),
    last_sent_at = min(last_sent_at, ?1), started_at = min(started_at, ?1),
    stopped_at = min(stopped_at, ?1)
WHERE last_heartbeat_at > ?2
