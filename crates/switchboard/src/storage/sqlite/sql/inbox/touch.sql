UPDATE inbox_position SET last = last
