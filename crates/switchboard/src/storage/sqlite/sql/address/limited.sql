SELECT window_ends_at FROM auth_failure
WHERE address = ?1 AND window_ends_at > ?2 AND failures >= ?3
