SELECT token_id, day::text, requests, accepted, duplicates, refused FROM tenure.token_usage
WHERE day >= $2::date AND ($1 IS NULL OR token_id = $1)
ORDER BY day, token_id
