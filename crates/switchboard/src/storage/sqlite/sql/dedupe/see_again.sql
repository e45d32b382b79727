UPDATE ingest_dedupe SET seen = seen + 1, last_seen_at = max(last_seen_at, ?3),
    reused = reused + (payload_digest <> ?2)
WHERE dedupe_digest = ?1 RETURNING request_id, payload_digest <> ?2
