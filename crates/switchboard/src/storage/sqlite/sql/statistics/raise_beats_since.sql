UPDATE connector_stats_progress SET beats_since = max(beats_since, ?1)
