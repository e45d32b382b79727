-- The instance that represents its connector stays.
DELETE FROM connector_instances WHERE rowid IN (SELECT i.rowid
    FROM connector_instances i WHERE i.last_heartbeat_at < ?1 AND NOT EXISTS
        (SELECT 1 FROM connector_registry r
        WHERE r.connector_type = i.connector_type
            AND r.endpoint_identity = i.endpoint_identity AND r.instance_id = i.instance_id)
    ORDER BY i.last_heartbeat_at LIMIT ?2)
