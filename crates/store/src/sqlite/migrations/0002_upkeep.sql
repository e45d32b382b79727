--! breaking: grants must be above floors, which older versions do not read

-- What is said of the store as a whole: one row.
CREATE TABLE store (
    only_row INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    -- Empty until the store is adopted for the first time.
    incarnation TEXT NOT NULL DEFAULT '',
    -- No epoch up to this one is granted in any group.
    floor INTEGER NOT NULL DEFAULT 0,
    history_slots INTEGER NOT NULL DEFAULT 32,
    audit_kept INTEGER NOT NULL DEFAULT 100000,
    -- For people.
    adopted_unix_ms INTEGER
) STRICT;

INSERT INTO store DEFAULT VALUES;

-- No epoch up to this one is granted in the group: duties that had it were forgotten. Together with
-- the rows of `hold`, which go only when their epoch is in here, this is the store's memory of
-- epochs (R2).
CREATE TABLE group_floor (
    group_name TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Nonces were forgotten a week after their first use, even while something carried them.
INSERT OR REPLACE INTO spent (group_name, nonce, unix_ms)
SELECT group_name, nonce, CAST(unixepoch('subsec') * 1000 AS INTEGER) FROM (
    SELECT group_name, nonce FROM session UNION SELECT group_name, nonce FROM hold WHERE held);
