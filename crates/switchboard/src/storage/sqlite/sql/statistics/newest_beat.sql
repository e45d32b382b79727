SELECT received_at FROM connector_heartbeat_log WHERE id <= ?1 ORDER BY id DESC LIMIT 1
