UPDATE connector_stats_progress SET last_ack = last_ack + ?1
