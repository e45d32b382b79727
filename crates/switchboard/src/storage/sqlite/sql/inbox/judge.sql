UPDATE message_inbox SET lifecycle_state = CASE WHEN EXISTS
        (SELECT 1 FROM inbox_outcome WHERE request_id = ?1 AND acked_at IS NULL)
    THEN 'failed' ELSE 'dispatched' END
WHERE request_id = ?1
