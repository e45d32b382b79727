-- ?1 group, ?2 instance, ?3 how many holds have left
UPDATE session SET left_count = left_count + ?3 WHERE group_name = ?1 AND instance = ?2
