-- ?1 group, ?2 after, ?3 limit
SELECT seq, unix_ms, kind, instance, duty, epoch, reason FROM audit
WHERE group_name = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3
