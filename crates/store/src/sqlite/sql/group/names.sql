SELECT group_name FROM session UNION SELECT group_name FROM hold
UNION SELECT group_name FROM group_document ORDER BY group_name
