--! breaking: positions go on above a floor, which older versions do not read
-- Positions go on above the floor: what a restore has lost is not given to other messages.
ALTER TABLE inbox_position ADD COLUMN floor INTEGER NOT NULL DEFAULT 0;
-- The messages at `last` and at `trimmed`. Cursors are compared with them when the rows are gone.
ALTER TABLE inbox_position ADD COLUMN last_id BLOB;
ALTER TABLE inbox_position ADD COLUMN trimmed_id BLOB;
UPDATE inbox_position
SET last_id = (SELECT request_id FROM message_inbox WHERE position = inbox_position.last);
