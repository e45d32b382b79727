-- ?1 group, ?2 nonce
SELECT 1 FROM spent WHERE group_name = ?1 AND nonce = ?2
