-- Sessions, holds, checkpoints, group documents and the audit trail.

-- One row for each instance that was ever a member. Expiry is in nanoseconds of CLOCK_BOOTTIME, so
-- it means something only within one boot; `meta` remembers which.
CREATE TABLE session (
    group_name TEXT NOT NULL,
    instance TEXT NOT NULL,
    nonce TEXT NOT NULL,
    note BLOB NOT NULL,
    expires_ns INTEGER NOT NULL,
    -- Grows when holds leave this session: while it stands still, none can have been lost.
    left_count INTEGER NOT NULL,
    evicted INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (group_name, instance)
) STRICT, WITHOUT ROWID;

-- The nonces of sessions, from their first use on, so that none is used twice.
CREATE TABLE spent (
    group_name TEXT NOT NULL,
    nonce TEXT NOT NULL,
    unix_ms INTEGER NOT NULL,
    PRIMARY KEY (group_name, nonce)
) STRICT, WITHOUT ROWID;

-- The last grant of each duty. Rows are never deleted: the epoch must survive (R2).
CREATE TABLE hold (
    group_name TEXT NOT NULL,
    duty TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    instance TEXT NOT NULL,
    nonce TEXT NOT NULL,
    held INTEGER NOT NULL,
    PRIMARY KEY (group_name, duty)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoint (
    group_name TEXT NOT NULL,
    duty TEXT NOT NULL,
    version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    instance TEXT NOT NULL,
    document BLOB NOT NULL,
    unix_ms INTEGER NOT NULL,
    PRIMARY KEY (group_name, duty)
) STRICT, WITHOUT ROWID;

-- A ring: version modulo the number of slots.
CREATE TABLE history (
    group_name TEXT NOT NULL,
    duty TEXT NOT NULL,
    slot INTEGER NOT NULL,
    version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    instance TEXT NOT NULL,
    document BLOB NOT NULL,
    unix_ms INTEGER NOT NULL,
    PRIMARY KEY (group_name, duty, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE group_document (
    group_name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    document BLOB NOT NULL
) STRICT;

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    unix_ms INTEGER NOT NULL,
    group_name TEXT NOT NULL,
    kind TEXT NOT NULL,
    instance TEXT NOT NULL,
    duty TEXT,
    epoch INTEGER,
    reason TEXT NOT NULL
) STRICT;

CREATE INDEX audit_by_group ON audit (group_name, seq);

-- Counts the changes of a group that others may want to hear of.
CREATE TABLE change (
    group_name TEXT NOT NULL PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
