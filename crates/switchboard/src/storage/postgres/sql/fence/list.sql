SELECT duty, epoch, instance, updated_at FROM tenure.ingest_fence
WHERE duty > $1 ORDER BY duty LIMIT $2
