UPDATE dead_letter SET state = ?2, resolved_at = ?3, resolved_by = ?4, resolution = ?5,
    request_id = ?6
WHERE id = ?1 AND state = 'pending'
