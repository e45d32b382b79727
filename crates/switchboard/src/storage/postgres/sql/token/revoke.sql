-- Ends a token and notes it: whether it did, and whether there is one.
WITH done AS (
    UPDATE tenure.connector_tokens
    SET revoked_at = clock_timestamp(), revoked_by = $2, revoked_reason = $3
    WHERE token_id = $1 AND revoked_at IS NULL AND expires_at > clock_timestamp()
    RETURNING token_id
), noted AS (
    INSERT INTO tenure.token_audit_log
        (token_id, action_type, operator_identity, reason, performed_at, metadata)
    SELECT token_id, 'revoke', $2, $3, clock_timestamp(), '{}' FROM done
)
SELECT EXISTS (SELECT FROM done),
    EXISTS (SELECT FROM tenure.connector_tokens WHERE token_id = $1)
