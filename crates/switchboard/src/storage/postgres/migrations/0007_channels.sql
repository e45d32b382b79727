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
-- They have more columns now.
DROP FUNCTION IF EXISTS tenure.outcome_report(timestamptz, uuid, text, text, text[], text[]);
DROP FUNCTION IF EXISTS tenure.connector_delete(text, text, text, text, text);
