-- Finds the key ?1, or ?2 of the previous hour if observed after ?3: the first seen of both.
SELECT dedupe_digest FROM ingest_dedupe
WHERE dedupe_digest = ?1 OR (dedupe_digest = ?2 AND observed_at > ?3)
ORDER BY first_seen_at, request_id LIMIT 1
