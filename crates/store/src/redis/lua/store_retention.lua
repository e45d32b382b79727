-- How much of the past is kept.
--
-- KEYS[1]  the marker          ARGV[1]  incarnation
-- reply    {history slots, audit entries}

local refusal = refused()
if refusal then return refusal end
return { HISTORY_SLOTS, AUDIT_KEPT }
