DELETE FROM connector_stats_window WHERE period = ?1
