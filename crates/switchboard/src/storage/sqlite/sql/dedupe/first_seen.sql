SELECT first_seen_at FROM ingest_dedupe WHERE request_id = ?1
