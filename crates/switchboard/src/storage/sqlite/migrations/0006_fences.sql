--! breaking: a fence belongs to a source, which older versions do not read
-- A fence belongs to a source: a token reaches those of its own only. What was seen before counts
-- for every source, and so does what is submitted without a token: their `source` is empty.
CREATE TABLE ingest_fence_by_source (
    duty TEXT NOT NULL,
    -- A digest over the three names.
    source BLOB NOT NULL DEFAULT x'',
    source_channel TEXT NOT NULL DEFAULT '',
    source_provider TEXT NOT NULL DEFAULT '',
    source_endpoint_identity TEXT NOT NULL DEFAULT '',
    epoch INTEGER NOT NULL CHECK (epoch BETWEEN 0 AND 9007199254740991),
    instance TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (duty, source)
) STRICT;
INSERT INTO ingest_fence_by_source (duty, epoch, instance, updated_at)
    SELECT duty, epoch, instance, updated_at FROM ingest_fence;
DROP TABLE ingest_fence;
ALTER TABLE ingest_fence_by_source RENAME TO ingest_fence;
CREATE INDEX ingest_fence_source ON ingest_fence (source);
