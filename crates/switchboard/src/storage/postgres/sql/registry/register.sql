-- Registers a connector and records it. Returns whether it is new.
WITH made AS (
    INSERT INTO tenure.connector_registry
        (connector_type, endpoint_identity, first_seen_at, registered_via)
    VALUES ($1, $2, clock_timestamp(), 'operator')
    ON CONFLICT (connector_type, endpoint_identity) DO NOTHING RETURNING true
), noted AS (
    INSERT INTO tenure.token_audit_log
        (token_id, action_type, operator_identity, reason, performed_at, metadata)
    SELECT $4, 'connector_register', $3, '', clock_timestamp(),
        json_build_object('connector_type', $1, 'endpoint_identity', $2)::text
    FROM made
)
SELECT EXISTS (SELECT FROM made)
