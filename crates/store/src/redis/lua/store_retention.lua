-- How much of the past is kept.
--
-- KEYS[1]  the marker          ARGV[1]  incarnation
-- reply    {history slots, audit entries}

return { HISTORY_SLOTS, AUDIT_KEPT }
