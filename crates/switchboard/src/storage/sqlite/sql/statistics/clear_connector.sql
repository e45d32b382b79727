DELETE FROM connector_stats_hourly
WHERE connector_type = ?1 AND endpoint_identity = ?2 AND hour >= ?3;
DELETE FROM connector_stats_daily
WHERE connector_type = ?1 AND endpoint_identity = ?2 AND day >= date(?3 / 1000000, 'unixepoch');
DELETE FROM connector_stats_window
WHERE connector_type = ?1 AND endpoint_identity = ?2 AND ?3 IS NOT NULL;
