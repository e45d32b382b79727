DELETE FROM dead_letter WHERE id IN (SELECT id
    FROM dead_letter WHERE resolved_at < ?1 ORDER BY resolved_at LIMIT ?2)
