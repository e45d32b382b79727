SELECT target, acked_at IS NOT NULL FROM tenure.inbox_outcome WHERE request_id = $1 ORDER BY target
