INSERT INTO connector_registry
    (connector_type, endpoint_identity, first_seen_at, registered_token_id)
VALUES (?1, ?2, ?3, ?4)
