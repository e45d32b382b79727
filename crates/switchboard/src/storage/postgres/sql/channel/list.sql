SELECT channel, providers, alias FROM tenure.ingest_channel ORDER BY channel
