-- Reads the retention of histories and audit trails.
--
-- KEYS[1]  the marker          ARGV[1]  incarnation
-- reply    {history slots, audit entries}

return { HISTORY_SLOTS, AUDIT_KEPT }
