-- Times are Unix microseconds.
-- The inbox: what was accepted, in the order in which it was committed. Positions have no gaps.
CREATE TABLE message_inbox (
    position INTEGER NOT NULL PRIMARY KEY,
    request_id BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    source_channel TEXT NOT NULL,
    source_provider TEXT NOT NULL,
    source_endpoint_identity TEXT NOT NULL,
    source_sender_identity TEXT NOT NULL,
    source_thread_identity TEXT,
    policy_tier TEXT NOT NULL,
    dedupe_key TEXT NOT NULL,
    authenticated_token_id TEXT,
    lifecycle_state TEXT NOT NULL DEFAULT 'accepted',
    -- The envelope as JSON.
    envelope TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX message_inbox_request ON message_inbox (request_id);
CREATE INDEX message_inbox_endpoint
    ON message_inbox (source_endpoint_identity, position);

-- One row. Whoever adds to the inbox locks it first, so that positions become visible in order.
CREATE TABLE inbox_position (
    only_row INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    last INTEGER NOT NULL,
    -- Everything up to here may be gone: it was past its retention.
    trimmed INTEGER NOT NULL
) STRICT;
INSERT INTO inbox_position (last, trimmed) VALUES (0, 0);

-- What was seen. It outlives the inbox, and is not partitioned: uniqueness is all that it is for.
CREATE TABLE ingest_dedupe (
    dedupe_digest BLOB NOT NULL PRIMARY KEY,
    request_id BLOB NOT NULL,
    payload_digest BLOB NOT NULL,
    observed_at INTEGER NOT NULL,
    first_seen_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    seen INTEGER NOT NULL DEFAULT 1,
    -- How often the key came with another payload.
    reused INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX ingest_dedupe_age ON ingest_dedupe (last_seen_at);
CREATE INDEX ingest_dedupe_request ON ingest_dedupe (request_id);

-- The newest epoch that was seen of each duty, and whose it was (R11).
CREATE TABLE ingest_fence (
    duty TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL CHECK (epoch BETWEEN 0 AND 9007199254740991),
    instance TEXT NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

-- What connectors gave up.
CREATE TABLE dead_letter (
    id BLOB NOT NULL PRIMARY KEY,
    -- Of what was posted, so that posting it again changes nothing.
    digest BLOB NOT NULL UNIQUE,
    posted_at INTEGER NOT NULL,
    source_channel TEXT NOT NULL,
    source_provider TEXT NOT NULL,
    source_endpoint_identity TEXT NOT NULL,
    external_event_id TEXT,
    error_class TEXT NOT NULL,
    reason TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    duty TEXT,
    authenticated_token_id TEXT,
    envelope TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending',
    resolved_at INTEGER,
    resolved_by TEXT,
    resolution TEXT,
    request_id BLOB
) STRICT;
CREATE INDEX dead_letter_state ON dead_letter (state, id);
CREATE INDEX dead_letter_age ON dead_letter (resolved_at) WHERE resolved_at IS NOT NULL;

CREATE TABLE connector_tokens (
    token_id TEXT NOT NULL PRIMARY KEY,
    token_hash BLOB NOT NULL UNIQUE,
    -- live, staging or dev.
    environment TEXT NOT NULL,
    -- ingest, read, admin: between commas.
    roles TEXT NOT NULL,
    -- Null where a token submits nothing.
    scope_channel TEXT,
    scope_provider TEXT,
    scope_endpoint_identity TEXT,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    revoked_at INTEGER,
    revoked_by TEXT,
    revoked_reason TEXT,
    description TEXT NOT NULL,
    replaces_token_id TEXT,
    last_used_at INTEGER
) STRICT;

CREATE TABLE token_audit_log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    token_id TEXT NOT NULL,
    action_type TEXT NOT NULL,
    operator_identity TEXT NOT NULL,
    reason TEXT NOT NULL,
    performed_at INTEGER NOT NULL,
    metadata TEXT NOT NULL
) STRICT;
CREATE INDEX token_audit_log_token ON token_audit_log (token_id, id);

-- What was done with a token on a day (UTC).
CREATE TABLE token_usage (
    token_id TEXT NOT NULL,
    day TEXT NOT NULL,
    requests INTEGER NOT NULL DEFAULT 0,
    accepted INTEGER NOT NULL DEFAULT 0,
    duplicates INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (token_id, day)
) STRICT;

-- Attempts with a token that there is not, by address.
CREATE TABLE auth_failure (
    address TEXT NOT NULL PRIMARY KEY,
    failures INTEGER NOT NULL,
    window_ends_at INTEGER NOT NULL
) STRICT;
CREATE INDEX auth_failure_age ON auth_failure (window_ends_at);
