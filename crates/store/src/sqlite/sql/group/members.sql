-- ?1 group, ?2 now
SELECT instance, nonce, note, expires_ns, evicted FROM session
WHERE group_name = ?1 AND expires_ns > ?2 ORDER BY instance
