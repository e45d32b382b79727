INSERT INTO inbox_outcome (request_id, target, connector_type, endpoint_identity, reported_at)
VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (request_id, target) DO NOTHING
