-- ?1 group, ?2 instance, ?3 nonce
UPDATE hold SET held = 0
WHERE group_name = ?1 AND instance = ?2 AND nonce = ?3 AND held RETURNING duty, epoch
