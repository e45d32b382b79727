-- ?1 group, ?2 instance
SELECT nonce, expires_ns, left_count, evicted FROM session WHERE group_name = ?1 AND instance = ?2
