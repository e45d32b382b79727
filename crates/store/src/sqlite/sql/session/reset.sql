-- Ends every session: nanoseconds of another boot have no meaning.
UPDATE session SET expires_ns = 0
