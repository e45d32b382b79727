--! breaking: the functions that decide something are given the token, which older versions do not
-- They look at the token themselves.
DROP FUNCTION IF EXISTS tenure.outcome_report(timestamptz, uuid, text, text, text[], text[]);
DROP FUNCTION IF EXISTS tenure.connector_delete(text, text, text, text, text);
DROP FUNCTION IF EXISTS tenure.connector_recount(text, text, text, text, text);
DROP FUNCTION IF EXISTS tenure.fence_reset(text, text, text, text, text, text);
DROP FUNCTION IF EXISTS tenure.connector_beat(timestamptz, text, bigint, bigint, text, text, uuid,
    text, text, text, boolean, bigint, bigint[], text, timestamptz, text, timestamptz);
