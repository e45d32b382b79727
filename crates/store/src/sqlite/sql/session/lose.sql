-- ?1 group, ?2 instance, ?3 number of released holds
UPDATE session SET left_count = left_count + ?3 WHERE group_name = ?1 AND instance = ?2
