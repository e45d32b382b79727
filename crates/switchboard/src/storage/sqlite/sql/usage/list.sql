SELECT token_id, day, requests, accepted, duplicates, refused FROM token_usage
WHERE (?1 IS NULL OR token_id = ?1) AND day >= ?2 ORDER BY day, token_id
