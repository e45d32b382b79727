-- ?1 group, ?2 duty
DELETE FROM history WHERE group_name = ?1 AND duty = ?2
