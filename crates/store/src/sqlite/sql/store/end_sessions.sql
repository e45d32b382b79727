-- Ends every session. ?1 now
UPDATE session SET expires_ns = ?1 WHERE expires_ns > ?1
