-- What is said of the store as a whole, and the floors of groups. Programs from before may go on:
-- the floors are read inside functions, which this migration replaces.

CREATE TABLE tenure.store (
    only_row boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Empty until the store is adopted for the first time.
    incarnation text NOT NULL DEFAULT '',
    -- No epoch up to this one is granted in any group.
    floor bigint NOT NULL DEFAULT 0 CHECK (floor BETWEEN 0 AND 9007199254740991),
    history_slots integer NOT NULL DEFAULT 32 CHECK (history_slots > 0),
    audit_kept bigint NOT NULL DEFAULT 100000,
    -- For people.
    adopted_at timestamptz
);

INSERT INTO tenure.store DEFAULT VALUES;

-- No epoch up to this one is granted in the group: duties that had it were forgotten. Together with
-- the rows of `hold`, which go only when their epoch is in here, this is the store's memory of
-- epochs (R2).
CREATE TABLE tenure.group_floor (
    group_name text COLLATE "C" NOT NULL PRIMARY KEY,
    epoch bigint NOT NULL CHECK (epoch BETWEEN 0 AND 9007199254740991)
);

-- Nonces were forgotten a week after their first use, even while something carried them.
LOCK TABLE tenure.spent IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO tenure.spent (group_name, nonce)
SELECT group_name, nonce FROM tenure.session
UNION SELECT group_name, nonce FROM tenure.hold WHERE held
ON CONFLICT (group_name, nonce) DO UPDATE SET used_at = clock_timestamp();
