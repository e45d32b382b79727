SELECT id, digest, source_channel, source_provider, source_endpoint_identity, external_event_id,
    error_class, reason, attempts, envelope, posted_at, duty, authenticated_token_id, state,
    resolved_at, resolved_by, resolution, request_id
FROM dead_letter
WHERE id > ?1 AND (?3 IS NULL OR source_endpoint_identity = ?3)
    AND (?4 IS NULL OR source_channel = ?4) AND (?5 IS NULL OR source_provider = ?5)
    AND (?6 IS NULL OR posted_at >= ?6)
    AND (?7 IS NULL OR instr(error_class || ': ' || reason, ?7) > 0)
ORDER BY id LIMIT ?2
