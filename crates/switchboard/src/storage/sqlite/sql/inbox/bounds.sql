SELECT last, floor, trimmed, last_id, trimmed_id FROM inbox_position
