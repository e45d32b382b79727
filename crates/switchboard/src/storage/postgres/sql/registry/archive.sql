-- Archives a connector if $7, else restores it. Returns why the token $6 has ended, done, exists.
WITH token AS MATERIALIZED (
    SELECT tenure.token_ended($6, false) AS ended
), done AS (
    UPDATE tenure.connector_registry
    SET archived_at = CASE WHEN $7 THEN clock_timestamp() END
    WHERE connector_type = $1 AND endpoint_identity = $2 AND (archived_at IS NULL) = $7
        AND (SELECT ended FROM token) IS NULL
    RETURNING true
), noted AS (
    INSERT INTO tenure.token_audit_log
        (token_id, action_type, operator_identity, reason, performed_at, metadata)
    SELECT $3, CASE WHEN $7 THEN 'connector_archive' ELSE 'connector_unarchive' END,
        $4, $5, clock_timestamp(),
        json_build_object('connector_type', $1, 'endpoint_identity', $2)::text
    FROM done
)
SELECT (SELECT ended FROM token), EXISTS (SELECT FROM done), EXISTS (
    SELECT FROM tenure.connector_registry WHERE connector_type = $1 AND endpoint_identity = $2)
