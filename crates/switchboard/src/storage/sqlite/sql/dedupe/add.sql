INSERT INTO ingest_dedupe
    (dedupe_digest, request_id, payload_digest, observed_at, first_seen_at, last_seen_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?5) ON CONFLICT (dedupe_digest) DO NOTHING
