-- ?1 group
SELECT count FROM change WHERE group_name = ?1
