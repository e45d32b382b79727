-- ?1 group, ?2 duty
UPDATE hold SET held = 0 WHERE group_name = ?1 AND duty = ?2
