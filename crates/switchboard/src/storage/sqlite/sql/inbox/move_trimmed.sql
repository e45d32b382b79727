UPDATE inbox_position SET trimmed = ?1, trimmed_id = ?2 WHERE trimmed < ?1
