-- $1 channel, $2 its providers and $3 its alias now, $4 and $5 the new ones; $2 null to add it, $4
-- null to remove it. $6 action, $7 operator. No row: the current values differ.
WITH added AS (
    INSERT INTO tenure.ingest_channel (channel, providers, alias)
    SELECT $1, $4, $5 WHERE $2 IS NULL AND $4 IS NOT NULL
    ON CONFLICT (channel) DO NOTHING RETURNING channel
), changed AS (
    UPDATE tenure.ingest_channel SET providers = $4, alias = $5
    WHERE channel = $1 AND providers = $2 AND alias IS NOT DISTINCT FROM $3 AND $4 IS NOT NULL
    RETURNING channel
), removed AS (
    DELETE FROM tenure.ingest_channel
    WHERE channel = $1 AND providers = $2 AND alias IS NOT DISTINCT FROM $3 AND $4 IS NULL
    RETURNING channel
), done AS (
    SELECT channel FROM added UNION ALL SELECT channel FROM changed
    UNION ALL SELECT channel FROM removed
)
INSERT INTO tenure.token_audit_log
    (token_id, action_type, operator_identity, reason, performed_at, metadata)
SELECT channel, $6, $7, '', clock_timestamp(),
    json_build_object('providers', $4, 'alias', $5)::text
FROM done RETURNING id
