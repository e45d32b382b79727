UPDATE ingest_fence SET epoch = ?3, instance = ?4, updated_at = ?5 WHERE duty = ?1 AND source = ?2
