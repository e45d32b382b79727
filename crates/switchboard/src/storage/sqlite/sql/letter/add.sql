INSERT INTO dead_letter (id, digest, posted_at, source_channel, source_provider,
    source_endpoint_identity, external_event_id, error_class, reason, attempts, duty,
    authenticated_token_id, envelope)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (digest) DO NOTHING
