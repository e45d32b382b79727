-- The inbox: what was accepted, in the order in which it was committed. Positions have no gaps.
CREATE TABLE tenure.message_inbox (
    position bigint NOT NULL PRIMARY KEY,
    request_id uuid NOT NULL,
    received_at timestamptz NOT NULL,
    source_channel text NOT NULL,
    source_provider text NOT NULL,
    source_endpoint_identity text NOT NULL,
    source_sender_identity text NOT NULL,
    source_thread_identity text,
    policy_tier text NOT NULL,
    dedupe_key text NOT NULL,
    authenticated_token_id text,
    lifecycle_state text NOT NULL DEFAULT 'accepted',
    -- The envelope as JSON text: jsonb could not keep everything that JSON can say.
    envelope text NOT NULL
);
CREATE UNIQUE INDEX message_inbox_request ON tenure.message_inbox (request_id);
-- By a number, since a name may be longer than an index takes.
CREATE INDEX message_inbox_endpoint
    ON tenure.message_inbox (hashtextextended(source_endpoint_identity, 0), position);

-- One row. Whoever adds to the inbox locks it first, so that positions become visible in order.
CREATE TABLE tenure.inbox_position (
    only_row boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (only_row),
    last bigint NOT NULL,
    -- Everything up to here may be gone: it was past its retention.
    trimmed bigint NOT NULL
);
INSERT INTO tenure.inbox_position (last, trimmed) VALUES (0, 0);

-- What was seen. It outlives the inbox, and is not partitioned: uniqueness is all that it is for.
CREATE TABLE tenure.ingest_dedupe (
    dedupe_digest bytea NOT NULL PRIMARY KEY,
    request_id uuid NOT NULL,
    payload_digest bytea NOT NULL,
    observed_at timestamptz NOT NULL,
    first_seen_at timestamptz NOT NULL,
    -- To the hour: the index of ages is not written to by every duplicate.
    last_seen_at timestamptz NOT NULL,
    seen bigint NOT NULL DEFAULT 1,
    -- How often the key came with another payload.
    reused bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 90);
CREATE INDEX ingest_dedupe_request ON tenure.ingest_dedupe (request_id);
CREATE INDEX ingest_dedupe_age ON tenure.ingest_dedupe (last_seen_at);

-- The newest epoch that was seen of each duty, and whose it was (R11).
CREATE TABLE tenure.ingest_fence (
    duty text COLLATE "C" NOT NULL PRIMARY KEY,
    epoch bigint NOT NULL CHECK (epoch BETWEEN 0 AND 9007199254740991),
    instance text NOT NULL,
    updated_at timestamptz NOT NULL
);

-- What connectors gave up.
CREATE TABLE tenure.dead_letter (
    id uuid NOT NULL PRIMARY KEY,
    -- Of what was posted, so that posting it again changes nothing.
    digest bytea NOT NULL UNIQUE,
    posted_at timestamptz NOT NULL,
    source_channel text NOT NULL,
    source_provider text NOT NULL,
    source_endpoint_identity text NOT NULL,
    external_event_id text,
    error_class text NOT NULL,
    reason text NOT NULL,
    attempts bigint NOT NULL,
    duty text,
    authenticated_token_id text,
    envelope text NOT NULL,
    state text NOT NULL DEFAULT 'pending',
    resolved_at timestamptz,
    resolved_by text,
    resolution text,
    request_id uuid
);
CREATE INDEX dead_letter_state ON tenure.dead_letter (state, id);
CREATE INDEX dead_letter_age ON tenure.dead_letter (resolved_at) WHERE resolved_at IS NOT NULL;

CREATE TABLE tenure.connector_tokens (
    token_id text NOT NULL PRIMARY KEY,
    token_hash bytea NOT NULL UNIQUE,
    -- live, staging or dev.
    environment text NOT NULL,
    -- ingest, read, admin: between commas.
    roles text NOT NULL,
    -- Null where a token submits nothing.
    scope_channel text,
    scope_provider text,
    scope_endpoint_identity text,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    revoked_by text,
    revoked_reason text,
    description text NOT NULL,
    replaces_token_id text,
    last_used_at timestamptz
);

CREATE TABLE tenure.token_audit_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token_id text NOT NULL,
    action_type text NOT NULL,
    operator_identity text NOT NULL,
    reason text NOT NULL,
    performed_at timestamptz NOT NULL,
    metadata text NOT NULL
);
CREATE INDEX token_audit_log_token ON tenure.token_audit_log (token_id, id);

-- What was done with a token on a day (UTC).
CREATE TABLE tenure.token_usage (
    token_id text NOT NULL,
    day date NOT NULL,
    requests bigint NOT NULL DEFAULT 0,
    accepted bigint NOT NULL DEFAULT 0,
    duplicates bigint NOT NULL DEFAULT 0,
    refused bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (token_id, day)
);

-- Attempts with a token that there is not, by address.
CREATE TABLE tenure.auth_failure (
    address text NOT NULL PRIMARY KEY,
    failures bigint NOT NULL,
    window_ends_at timestamptz NOT NULL
);
CREATE INDEX auth_failure_age ON tenure.auth_failure (window_ends_at);
