-- ?1 group
SELECT version, document FROM group_document WHERE group_name = ?1
