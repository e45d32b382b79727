-- ?1 group, ?2 instance, ?3 nonce, ?4 note, ?5 expires, ?6 first mark
INSERT INTO session (group_name, instance, nonce, note, expires_ns, left_count)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (group_name, instance) DO UPDATE SET nonce = excluded.nonce, note = excluded.note,
    expires_ns = excluded.expires_ns, left_count = excluded.left_count
