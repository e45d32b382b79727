-- The nanoseconds of another boot mean nothing: every session has ended.
UPDATE session SET expires_ns = 0
