INSERT INTO message_inbox (position, request_id, received_at, source_channel, source_provider,
    source_endpoint_identity, source_sender_identity, source_thread_identity, policy_tier,
    dedupe_key, authenticated_token_id, envelope)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
