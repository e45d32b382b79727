SELECT request_id FROM message_inbox WHERE position = ?1
