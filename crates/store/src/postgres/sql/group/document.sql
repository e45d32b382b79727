-- $1 group
SELECT version, document FROM tenure.group_document WHERE group_name = $1
