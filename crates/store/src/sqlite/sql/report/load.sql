-- ?1 group, ?2 duty
SELECT epoch, instance, document, unix_ms FROM report WHERE group_name = ?1 AND duty = ?2
