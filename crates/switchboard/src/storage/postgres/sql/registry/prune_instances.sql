-- The instance that represents its connector stays.
DELETE FROM tenure.connector_instances WHERE ctid = ANY (ARRAY(
    SELECT i.ctid FROM tenure.connector_instances i
    WHERE i.last_day <= (
            SELECT ((coalesce($2, reached) - $1 * interval '1 microsecond')
                AT TIME ZONE 'UTC')::date
            FROM tenure.switchboard_clock WHERE only_row)
        AND i.last_heartbeat_at < (
            SELECT coalesce($2, reached) - $1 * interval '1 microsecond'
            FROM tenure.switchboard_clock WHERE only_row)
        AND NOT EXISTS (
            SELECT FROM tenure.connector_registry r
            WHERE r.connector_type = i.connector_type
                AND r.endpoint_identity = i.endpoint_identity
                AND r.instance_id = i.instance_id)
    ORDER BY i.last_day LIMIT 1000 FOR UPDATE OF i SKIP LOCKED
)) RETURNING true
