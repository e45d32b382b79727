DELETE FROM auth_failure WHERE address IN (SELECT address
    FROM auth_failure WHERE window_ends_at < ?1 ORDER BY window_ends_at LIMIT ?2)
