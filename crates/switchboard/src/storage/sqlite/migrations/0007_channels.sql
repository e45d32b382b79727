--! breaking: dedupe keys have aliases of channels, which older versions do not read
-- The channels that events may come from, and the providers of each, between commas. An alias
-- stands for the channel in dedupe keys.
CREATE TABLE ingest_channel (
    channel TEXT NOT NULL PRIMARY KEY,
    providers TEXT NOT NULL,
    alias TEXT
) STRICT;
INSERT INTO ingest_channel (channel, providers) VALUES
    ('telegram', 'telegram'), ('slack', 'slack'), ('email', 'gmail,imap'), ('api', 'internal'),
    ('mcp', 'internal');
