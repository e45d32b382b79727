-- The key ?1, or that of the previous hour if it was observed after ?3. The first one of both.
SELECT dedupe_digest FROM ingest_dedupe
WHERE dedupe_digest = ?1 OR (dedupe_digest = ?2 AND observed_at > ?3)
ORDER BY first_seen_at, request_id LIMIT 1
