-- One message; when its body has been deleted, only its dedupe entry is left.
SELECT d.first_seen_at, NULL, NULL, NULL, m.position, m.request_id, m.received_at,
    m.source_channel, m.source_provider, m.source_endpoint_identity, m.source_sender_identity,
    m.source_thread_identity, m.dedupe_key, m.authenticated_token_id, m.lifecycle_state, m.envelope
FROM (VALUES (true)) AS one(row)
LEFT JOIN LATERAL (
    SELECT * FROM tenure.message_inbox x WHERE x.request_id = $1 OFFSET 0
) AS m ON true
LEFT JOIN LATERAL (
    SELECT x.first_seen_at FROM tenure.ingest_dedupe x WHERE x.request_id = $1 LIMIT 1
) AS d ON true
