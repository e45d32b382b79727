INSERT INTO inbox_outcome (request_id, target, connector_type, endpoint_identity, reported_at,
    acked_at, arrival)
VALUES (?1, ?2, ?3, ?4, ?5, ?5, (SELECT last_ack + 1 FROM connector_stats_progress))
ON CONFLICT (request_id, target) DO UPDATE SET reported_at = excluded.reported_at,
    acked_at = excluded.acked_at, arrival = excluded.arrival
WHERE acked_at IS NULL
