-- ?1 group, ?2 instance, ?3 nonce and ?4 expires for an instance that is not a member
INSERT INTO session (group_name, instance, nonce, note, expires_ns, left_count, evicted)
VALUES (?1, ?2, ?3, x'', ?4, 0, 1)
ON CONFLICT (group_name, instance) DO UPDATE SET evicted = 1
