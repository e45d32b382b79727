UPDATE connector_tokens SET revoked_at = ?2, revoked_by = ?3, revoked_reason = ?4
WHERE token_id = ?1 AND revoked_at IS NULL
