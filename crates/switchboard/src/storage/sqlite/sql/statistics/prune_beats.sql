DELETE FROM connector_heartbeat_log WHERE id IN (SELECT id
    FROM connector_heartbeat_log WHERE received_at < ?1
        AND id <= (SELECT counted_beat FROM connector_stats_progress)
    ORDER BY received_at LIMIT ?2)
