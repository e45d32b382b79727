-- $1 duty, $2 channel, $3 provider, $4 endpoint to continue after; $5 limit; $6, $7, $8 the source,
-- or null.
SELECT source_channel, source_provider, source_endpoint_identity, duty, epoch, instance, updated_at
FROM tenure.ingest_fence
WHERE duty >= $1 AND (duty, source_channel COLLATE "C", source_provider COLLATE "C",
    source_endpoint_identity COLLATE "C") > ($1, $2, $3, $4)
    AND ($6 IS NULL OR (source_channel, source_provider, source_endpoint_identity) = ($6, $7, $8))
ORDER BY duty, source_channel COLLATE "C", source_provider COLLATE "C",
    source_endpoint_identity COLLATE "C" LIMIT $5
