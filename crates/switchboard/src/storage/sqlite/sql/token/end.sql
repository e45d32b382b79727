SELECT revoked_at IS NOT NULL, expires_at FROM connector_tokens WHERE token_id = ?1
