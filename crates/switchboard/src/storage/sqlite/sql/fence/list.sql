SELECT source_channel, source_provider, source_endpoint_identity, duty, epoch, instance, updated_at
FROM ingest_fence
WHERE (duty, source_channel, source_provider, source_endpoint_identity) > (?1, ?2, ?3, ?4)
    AND (?6 IS NULL OR source = ?6)
ORDER BY duty, source_channel, source_provider, source_endpoint_identity LIMIT ?5
