UPDATE inbox_position SET floor = ?1
