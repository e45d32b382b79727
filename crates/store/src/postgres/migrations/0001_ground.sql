-- Sessions, holds, checkpoints, group documents and the audit trail.
-- Names sort by bytes ("C"), as every other store sorts them.

-- One row for each instance that was ever a member. `expires_at` is judged by clock_timestamp()
-- alone. `ended` is final: a session that somebody has seen expired never lives again, not even
-- when the server's clock is set back.
CREATE TABLE tenure.session (
    group_name text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    nonce uuid NOT NULL,
    note bytea NOT NULL,
    ttl interval NOT NULL,
    expires_at timestamptz NOT NULL,
    ended boolean NOT NULL DEFAULT false,
    evicted boolean NOT NULL DEFAULT false,
    -- Grows when holds leave this session: while it stands still, none can have been lost.
    left_count bigint NOT NULL,
    PRIMARY KEY (group_name, instance)
) WITH (fillfactor = 50);

-- The nonces of sessions, from their first use on, so that none is used twice.
CREATE TABLE tenure.spent (
    group_name text COLLATE "C" NOT NULL,
    nonce uuid NOT NULL,
    used_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (group_name, nonce)
);

-- The last grant of each duty. Rows are never deleted: the epoch must survive (R2).
CREATE TABLE tenure.hold (
    group_name text COLLATE "C" NOT NULL,
    duty text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL CHECK (epoch BETWEEN 0 AND 9007199254740991),
    instance text COLLATE "C" NOT NULL,
    nonce uuid NOT NULL,
    held boolean NOT NULL,
    PRIMARY KEY (group_name, duty)
) WITH (fillfactor = 70);

CREATE TABLE tenure.checkpoint (
    group_name text COLLATE "C" NOT NULL,
    duty text COLLATE "C" NOT NULL,
    version bigint NOT NULL CHECK (version BETWEEN 1 AND 9007199254740991),
    epoch bigint NOT NULL,
    instance text COLLATE "C" NOT NULL,
    document bytea NOT NULL,
    written_at timestamptz NOT NULL,
    PRIMARY KEY (group_name, duty)
) WITH (fillfactor = 70);

-- A ring: version modulo the number of slots.
CREATE TABLE tenure.history (
    group_name text COLLATE "C" NOT NULL,
    duty text COLLATE "C" NOT NULL,
    slot integer NOT NULL,
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    instance text COLLATE "C" NOT NULL,
    document bytea NOT NULL,
    written_at timestamptz NOT NULL,
    PRIMARY KEY (group_name, duty, slot)
) WITH (fillfactor = 70);

CREATE TABLE tenure.group_document (
    group_name text COLLATE "C" NOT NULL PRIMARY KEY,
    version bigint NOT NULL CHECK (version BETWEEN 1 AND 9007199254740991),
    document bytea NOT NULL
);

CREATE TABLE tenure.audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    group_name text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    instance text COLLATE "C" NOT NULL,
    duty text COLLATE "C",
    epoch bigint,
    reason text NOT NULL
);

CREATE INDEX audit_by_group ON tenure.audit (group_name, seq);
