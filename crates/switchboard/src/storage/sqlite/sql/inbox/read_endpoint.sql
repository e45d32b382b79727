SELECT position, request_id, received_at, source_channel, source_provider,
    source_endpoint_identity, source_sender_identity, source_thread_identity, dedupe_key,
    authenticated_token_id, lifecycle_state, envelope
FROM message_inbox WHERE position > ?1 AND source_endpoint_identity = ?2 ORDER BY position
