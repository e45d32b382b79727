-- ?1 group, ?2 instance, ?3 nonce, ?4 now, ?5 expires, ?6 note or null
UPDATE session SET expires_ns = ?5, note = coalesce(?6, note)
WHERE group_name = ?1 AND instance = ?2 AND nonce = ?3 AND expires_ns > ?4 AND NOT evicted
RETURNING left_count
