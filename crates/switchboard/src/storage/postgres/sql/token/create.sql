-- Creates a token and records it. No row: the token that it replaces does not exist.
WITH made AS (
    INSERT INTO tenure.connector_tokens (token_id, token_hash, environment, roles, scope_channel,
        scope_provider, scope_endpoint_identity, created_at, created_by, expires_at, description,
        replaces_token_id)
    SELECT $1, $2, $3, $4, $5, $6, $7, clock.now, $9,
        clock.now + $8 * interval '1 microsecond', $10, $11
    FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
    WHERE $11 IS NULL OR EXISTS (SELECT FROM tenure.connector_tokens WHERE token_id = $11)
    RETURNING *
)
INSERT INTO tenure.token_audit_log
    (token_id, action_type, operator_identity, reason, performed_at, metadata)
SELECT token_id, CASE WHEN replaces_token_id IS NULL THEN 'create' ELSE 'rotate' END, created_by,
    description, created_at, json_build_object('environment', environment,
        'roles', string_to_array(roles, ','), 'replaces_token_id', replaces_token_id)::text
FROM made
RETURNING id
