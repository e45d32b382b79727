-- $1 group, $2 instance, $3 nonce, $4 note or null. No row: the session has ended.
WITH kept AS (
    UPDATE tenure.session SET expires_at = clock_timestamp() + ttl, note = coalesce($4, note)
    WHERE group_name = $1 AND instance = $2 AND nonce = $3::text::uuid
        AND NOT ended AND NOT evicted AND expires_at > clock_timestamp()
    RETURNING left_count
)
SELECT left_count, CASE WHEN $4 IS NOT NULL THEN pg_notify('tenure.changes', $1) END FROM kept
