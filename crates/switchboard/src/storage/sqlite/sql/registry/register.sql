INSERT INTO connector_registry
    (connector_type, endpoint_identity, first_seen_at, registered_via)
VALUES (?1, ?2, ?3, 'operator')
ON CONFLICT (connector_type, endpoint_identity) DO NOTHING
