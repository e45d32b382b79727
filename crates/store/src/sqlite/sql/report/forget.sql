-- ?1 group, ?2 duty
DELETE FROM report WHERE group_name = ?1 AND duty = ?2
