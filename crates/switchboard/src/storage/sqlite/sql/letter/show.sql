SELECT id, digest, posted_at, source_channel, source_provider, source_endpoint_identity,
    external_event_id, error_class, reason, attempts, duty, authenticated_token_id, envelope,
    state, resolved_at, resolved_by, resolution, request_id
FROM dead_letter WHERE id = ?1
