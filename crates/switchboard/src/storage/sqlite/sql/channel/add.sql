INSERT INTO ingest_channel (channel, providers, alias) VALUES (?1, ?2, ?3)
