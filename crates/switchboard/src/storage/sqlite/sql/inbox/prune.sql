-- Deletes the oldest messages, at most ?3, up to the last one older than ?1 before the first kept.
DELETE FROM message_inbox WHERE position <= (SELECT max(position) FROM
    (SELECT position, received_at,
        max(received_at BETWEEN ?1 AND ?2) OVER (ORDER BY position) AS kept FROM
        (SELECT position, received_at FROM message_inbox ORDER BY position LIMIT ?3))
    WHERE received_at < ?1 AND NOT kept)
RETURNING position, request_id
