DELETE FROM connector_registry WHERE connector_type = ?1 AND endpoint_identity = ?2
