--! breaking: dedupe keys have aliases of channels, which older versions do not read
-- The channels that events may come from, and the providers of each, between commas. An alias
-- stands for the channel in dedupe keys.
CREATE TABLE tenure.ingest_channel (
    channel text COLLATE "C" NOT NULL PRIMARY KEY,
    providers text NOT NULL,
    alias text
);
INSERT INTO tenure.ingest_channel (channel, providers) VALUES
    ('telegram', 'telegram'), ('slack', 'slack'), ('email', 'gmail,imap'), ('api', 'internal'),
    ('mcp', 'internal');
