-- Counts heartbeats with ids after ?1 and up to ?2: of all connectors, or of the connector ?3, ?4
-- since the time ?5. Late heartbeats are not counted.
SELECT count(*) FROM (
    SELECT * FROM connector_heartbeat_log WHERE ?3 IS NULL AND id > ?1 AND id <= ?2
    UNION ALL
    SELECT * FROM connector_heartbeat_log WHERE connector_type = ?3 AND endpoint_identity = ?4
        AND received_at >= ?5 AND +id > ?1 AND +id <= ?2
)
WHERE NOT late
