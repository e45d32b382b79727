UPDATE inbox_position SET last = ?1,
    last_id = (SELECT request_id FROM message_inbox WHERE position = ?1)
