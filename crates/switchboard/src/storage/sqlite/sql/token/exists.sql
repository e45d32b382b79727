SELECT EXISTS (SELECT 1 FROM connector_tokens WHERE token_id = ?1)
