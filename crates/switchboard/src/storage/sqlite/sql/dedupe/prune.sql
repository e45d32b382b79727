DELETE FROM ingest_dedupe WHERE dedupe_digest IN (SELECT dedupe_digest
    FROM ingest_dedupe WHERE last_seen_at < ?1 ORDER BY last_seen_at LIMIT ?2)
