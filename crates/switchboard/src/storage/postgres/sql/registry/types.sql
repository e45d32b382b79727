SELECT connector_type FROM tenure.connector_registry WHERE endpoint_identity = $1
ORDER BY connector_type
