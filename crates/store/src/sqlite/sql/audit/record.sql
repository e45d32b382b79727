-- ?1 group, ?2 kind, ?3 instance, ?4 duty, ?5 epoch, ?6 reason
INSERT INTO audit (unix_ms, group_name, kind, instance, duty, epoch, reason)
VALUES (CAST(unixepoch('subsec') * 1000 AS INTEGER), ?1, ?2, ?3, ?4, ?5, ?6)
