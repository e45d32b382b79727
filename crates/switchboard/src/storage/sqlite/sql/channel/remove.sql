DELETE FROM ingest_channel WHERE channel = ?1
