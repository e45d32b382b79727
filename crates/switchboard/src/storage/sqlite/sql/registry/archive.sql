UPDATE connector_registry SET archived_at = ?3
WHERE connector_type = ?1 AND endpoint_identity = ?2
