SELECT group_name FROM tenure.session UNION SELECT group_name FROM tenure.hold
UNION SELECT group_name FROM tenure.group_document ORDER BY group_name
