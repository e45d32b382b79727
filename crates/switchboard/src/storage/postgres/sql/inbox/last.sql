SELECT last FROM tenure.inbox_position WHERE only_row
