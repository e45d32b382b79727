SELECT target, acked_at IS NOT NULL FROM inbox_outcome WHERE request_id = ?1 ORDER BY target
