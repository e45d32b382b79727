INSERT INTO ingest_fence (duty, source, epoch, instance, updated_at, source_channel,
    source_provider, source_endpoint_identity)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
WHERE ?2 = x'' OR ?9 > (SELECT count(*) FROM ingest_fence WHERE source = ?2)
