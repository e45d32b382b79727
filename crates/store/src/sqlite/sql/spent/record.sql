-- ?1 group, ?2 nonce
INSERT INTO spent (group_name, nonce, unix_ms)
VALUES (?1, ?2, CAST(unixepoch('subsec') * 1000 AS INTEGER))
