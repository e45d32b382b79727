-- Remembers nonces for a week after their session is removed: by session/sweep.sql, or because its
-- instance opens another. ?1 group, ?2 instance, ?3 a day ago
INSERT INTO spent (group_name, nonce, unix_ms)
SELECT group_name, nonce, CAST(unixepoch('subsec') * 1000 AS INTEGER) FROM session
WHERE group_name = ?1 AND (instance = ?2 OR (expires_ns < ?3 AND NOT evicted))
ON CONFLICT (group_name, nonce) DO UPDATE SET unix_ms = excluded.unix_ms
