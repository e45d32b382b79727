UPDATE connector_registry SET last_heartbeat_at = min(last_heartbeat_at, ?1),
    first_seen_at = min(first_seen_at, ?1)
WHERE last_heartbeat_at > ?2 OR first_seen_at > ?2
