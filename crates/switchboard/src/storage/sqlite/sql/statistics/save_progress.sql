UPDATE connector_stats_progress SET counted_beat = ?1, counted_ack = ?2, epoch = ?3,
    since_24h = ?4, since_7d = ?5, since_30d = ?6
