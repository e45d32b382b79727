SELECT EXISTS (SELECT 1 FROM message_inbox WHERE request_id = ?1)
