DELETE FROM connector_instances WHERE connector_type = ?1 AND endpoint_identity = ?2;
DELETE FROM connector_heartbeat_log WHERE connector_type = ?1 AND endpoint_identity = ?2;
DELETE FROM connector_stats_hourly WHERE connector_type = ?1 AND endpoint_identity = ?2;
DELETE FROM connector_stats_daily WHERE connector_type = ?1 AND endpoint_identity = ?2;
DELETE FROM connector_fanout_daily WHERE connector_type = ?1 AND endpoint_identity = ?2;
DELETE FROM connector_stats_window WHERE connector_type = ?1 AND endpoint_identity = ?2;
