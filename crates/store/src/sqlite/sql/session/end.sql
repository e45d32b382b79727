-- ?1 group, ?2 instance, ?3 now
UPDATE session SET expires_ns = min(expires_ns, ?3) WHERE group_name = ?1 AND instance = ?2
