INSERT INTO connector_tokens (token_id, token_hash, environment, roles, scope_channel,
    scope_provider, scope_endpoint_identity, created_at, created_by, expires_at, description,
    replaces_token_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
