SELECT count(*) FROM message_inbox
