-- Checks an attempt: $1 hash, $2 address, $3 limit, $4 window in microseconds.
-- Attempts with an unknown token are counted, except from a blocked address. A known token is never
-- blocked by its address.
WITH token AS MATERIALIZED (
    SELECT * FROM tenure.connector_tokens WHERE token_hash = $1
), before AS MATERIALIZED (
    SELECT failures, window_ends_at FROM tenure.auth_failure
    WHERE address = $2 AND window_ends_at > clock_timestamp()
), counted AS (
    INSERT INTO tenure.auth_failure AS a (address, failures, window_ends_at)
    SELECT $2, 1, clock_timestamp() + $4 * interval '1 microsecond'
    WHERE NOT EXISTS (SELECT FROM token) AND NOT EXISTS (SELECT FROM before WHERE failures >= $3)
    ON CONFLICT (address) DO UPDATE SET
        failures = CASE
            WHEN a.window_ends_at > excluded.window_ends_at - $4 * interval '1 microsecond'
            THEN a.failures + 1 ELSE 1 END,
        window_ends_at = CASE
            WHEN a.window_ends_at > excluded.window_ends_at - $4 * interval '1 microsecond'
            THEN a.window_ends_at ELSE excluded.window_ends_at END
    RETURNING failures, window_ends_at
), limited AS (
    -- From the counted row itself: concurrent attempts are serialised by it.
    SELECT window_ends_at FROM counted WHERE failures > $3
    UNION ALL
    SELECT window_ends_at FROM before
    WHERE failures >= $3 AND NOT EXISTS (SELECT FROM token)
)
SELECT (SELECT (extract(epoch FROM max(window_ends_at) - clock_timestamp()) * 1000000)::bigint
        FROM limited),
    CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked'
        WHEN t.expires_at <= clock_timestamp() THEN 'expired'
        WHEN t.token_id IS NOT NULL THEN 'good' ELSE 'unknown' END,
    t.token_id, t.environment, t.roles, t.scope_channel, t.scope_provider,
    t.scope_endpoint_identity, t.created_at, t.created_by, t.expires_at, t.revoked_at,
    t.revoked_by, t.revoked_reason, t.description, t.replaces_token_id, t.last_used_at
FROM (VALUES (true)) AS one(row) LEFT JOIN token t ON true
