DELETE FROM ingest_fence WHERE duty = ?1 AND source = ?2
