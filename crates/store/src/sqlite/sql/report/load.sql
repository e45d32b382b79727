-- ?1 group, ?2 duty
SELECT epoch, number, instance, document, unix_ms FROM report WHERE group_name = ?1 AND duty = ?2
