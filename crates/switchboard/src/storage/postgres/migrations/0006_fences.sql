--! breaking: a fence belongs to a source, which older versions do not read
-- A fence belongs to a source: a token reaches those of its own only. What was seen before counts
-- for every source, and so does what is submitted without a token: their `source` is empty.
ALTER TABLE tenure.ingest_fence
    -- A digest over the three names, which together may be too long for an index.
    ADD COLUMN source bytea NOT NULL DEFAULT '',
    ADD COLUMN source_channel text NOT NULL DEFAULT '',
    ADD COLUMN source_provider text NOT NULL DEFAULT '',
    ADD COLUMN source_endpoint_identity text NOT NULL DEFAULT '',
    DROP CONSTRAINT ingest_fence_pkey,
    ADD PRIMARY KEY (duty, source);
CREATE INDEX ingest_fence_source ON tenure.ingest_fence (source);
DROP FUNCTION IF EXISTS tenure.fence_reset(text, text, text);
