SELECT source_channel, source_provider, source_endpoint_identity, duty, epoch, instance, updated_at
FROM ingest_fence WHERE duty = ?1 ORDER BY source
