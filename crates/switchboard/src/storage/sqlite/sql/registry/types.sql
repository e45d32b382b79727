SELECT connector_type FROM connector_registry WHERE endpoint_identity = ?1 ORDER BY connector_type
