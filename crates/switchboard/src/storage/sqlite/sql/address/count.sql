INSERT INTO auth_failure (address, failures, window_ends_at)
VALUES (?1, 1, ?2) ON CONFLICT (address) DO UPDATE SET
    failures = CASE WHEN window_ends_at > ?3 THEN failures + 1 ELSE 1 END,
    window_ends_at = CASE WHEN window_ends_at > ?3 THEN window_ends_at ELSE ?2 END
