SELECT counted_beat, counted_ack, epoch, since_24h, since_7d, since_30d, beats_since, last_ack,
    (SELECT coalesce(max(id), 0) FROM connector_heartbeat_log)
FROM connector_stats_progress
