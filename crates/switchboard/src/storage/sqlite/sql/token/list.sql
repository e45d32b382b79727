SELECT token_id, environment, roles, scope_channel, scope_provider, scope_endpoint_identity,
    created_at, created_by, expires_at, revoked_at, revoked_by, revoked_reason, description,
    replaces_token_id, last_used_at
FROM connector_tokens ORDER BY created_at, token_id
