-- ?1 group, ?2 duty
SELECT version, epoch, instance, document, unix_ms FROM history
WHERE group_name = ?1 AND duty = ?2 ORDER BY version DESC
