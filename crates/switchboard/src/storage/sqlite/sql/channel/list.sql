SELECT channel, providers, alias FROM ingest_channel ORDER BY channel
