--! breaking: positions go on above a floor, which older versions do not read
-- Positions go on above the floor: what a restore has lost is not given to other messages.
ALTER TABLE tenure.inbox_position ADD COLUMN floor bigint NOT NULL DEFAULT 0;
-- The messages at `last` and at `trimmed`. Cursors are compared with them when the rows are gone.
ALTER TABLE tenure.inbox_position ADD COLUMN last_id uuid;
ALTER TABLE tenure.inbox_position ADD COLUMN trimmed_id uuid;
-- The system and timeline of the last commit; null where the server does not tell.
ALTER TABLE tenure.inbox_position ADD COLUMN lineage text;
UPDATE tenure.inbox_position p
SET last_id = (SELECT m.request_id FROM tenure.message_inbox m WHERE m.position = p.last);
-- It has more columns now.
DROP FUNCTION IF EXISTS tenure.inbox_endpoint(
    bigint, bigint, text, text, text, text, timestamptz, timestamptz, text);
