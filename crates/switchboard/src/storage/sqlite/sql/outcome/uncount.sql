UPDATE inbox_outcome SET arrival = NULL
WHERE arrival > ?3 AND connector_type = ?1 AND endpoint_identity = ?2
