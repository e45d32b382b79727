
-- What is known of each connector. Counters are the sum of what all its instances have done.
CREATE TABLE tenure.connector_registry (
    connector_type text COLLATE "C" NOT NULL,
    endpoint_identity text COLLATE "C" NOT NULL,
    instance_id uuid,
    version text,
    state text NOT NULL DEFAULT 'unknown',
    error_message text,
    uptime_s bigint,
    last_heartbeat_at timestamptz,
    first_seen_at timestamptz NOT NULL,
    registered_via text NOT NULL DEFAULT 'self',
    counter_messages_ingested bigint NOT NULL DEFAULT 0,
    counter_messages_failed bigint NOT NULL DEFAULT 0,
    counter_source_api_calls bigint NOT NULL DEFAULT 0,
    counter_checkpoint_saves bigint NOT NULL DEFAULT 0,
    counter_dedupe_accepted bigint NOT NULL DEFAULT 0,
    checkpoint_cursor text,
    checkpoint_updated_at timestamptz,
    -- With which token it was registered: a token may register a few.
    registered_token_id text,
    archived_at timestamptz,
    -- Of the newest beat of any instance, in microseconds.
    interval_micros bigint,
    drift_micros bigint,
    PRIMARY KEY (connector_type, endpoint_identity)
) WITH (fillfactor = 70);
CREATE INDEX connector_registry_endpoint ON tenure.connector_registry (endpoint_identity);
CREATE INDEX connector_registry_token ON tenure.connector_registry (registered_token_id)
    WHERE registered_token_id IS NOT NULL;

-- Each process of a connector, with its newest counters.
CREATE TABLE tenure.connector_instances (
    connector_type text COLLATE "C" NOT NULL,
    endpoint_identity text COLLATE "C" NOT NULL,
    instance_id uuid NOT NULL,
    version text,
    state text NOT NULL,
    error_message text,
    uptime_s bigint NOT NULL,
    started_at timestamptz NOT NULL,
    first_seen_at timestamptz NOT NULL,
    last_heartbeat_at timestamptz NOT NULL,
    -- At most five minutes after its arrival.
    last_sent_at timestamptz NOT NULL,
    stopped_at timestamptz,
    counter_messages_ingested bigint NOT NULL,
    counter_messages_failed bigint NOT NULL,
    counter_source_api_calls bigint NOT NULL,
    counter_checkpoint_saves bigint NOT NULL,
    counter_dedupe_accepted bigint NOT NULL,
    -- What the history was not told yet, because it could not be written.
    owed_messages_ingested bigint NOT NULL DEFAULT 0,
    owed_messages_failed bigint NOT NULL DEFAULT 0,
    owed_source_api_calls bigint NOT NULL DEFAULT 0,
    owed_checkpoint_saves bigint NOT NULL DEFAULT 0,
    owed_dedupe_accepted bigint NOT NULL DEFAULT 0,
    checkpoint_cursor text,
    checkpoint_updated_at timestamptz,
    capabilities text,
    interval_micros bigint,
    drift_micros bigint NOT NULL,
    beats bigint NOT NULL,
    late bigint NOT NULL DEFAULT 0,
    resets bigint NOT NULL DEFAULT 0,
    -- The index of ages is not written to by every beat.
    last_day date GENERATED ALWAYS AS ((last_heartbeat_at AT TIME ZONE 'UTC')::date) STORED,
    PRIMARY KEY (connector_type, endpoint_identity, instance_id)
) WITH (fillfactor = 70);
CREATE INDEX connector_instances_age ON tenure.connector_instances (last_day);

-- The history. A day is a partition, made ahead of time; what finds none goes into the last one.
CREATE TABLE tenure.connector_heartbeat_log (
    id bigint GENERATED ALWAYS AS IDENTITY,
    connector_type text COLLATE "C" NOT NULL,
    endpoint_identity text COLLATE "C" NOT NULL,
    instance_id uuid NOT NULL,
    state text NOT NULL,
    error_message text,
    uptime_s bigint NOT NULL,
    counter_messages_ingested bigint NOT NULL,
    counter_messages_failed bigint NOT NULL,
    counter_source_api_calls bigint NOT NULL,
    counter_checkpoint_saves bigint NOT NULL,
    counter_dedupe_accepted bigint NOT NULL,
    delta_messages_ingested bigint NOT NULL,
    delta_messages_failed bigint NOT NULL,
    delta_source_api_calls bigint NOT NULL,
    delta_checkpoint_saves bigint NOT NULL,
    delta_dedupe_accepted bigint NOT NULL,
    late boolean NOT NULL,
    received_at timestamptz NOT NULL,
    sent_at timestamptz NOT NULL,
    PRIMARY KEY (received_at, id)
) PARTITION BY RANGE (received_at);
CREATE INDEX connector_heartbeat_log_connector ON tenure.connector_heartbeat_log
    (connector_type, endpoint_identity, received_at DESC, id DESC);
CREATE TABLE tenure.connector_heartbeat_log_default
    PARTITION OF tenure.connector_heartbeat_log DEFAULT;

CREATE TABLE tenure.connector_stats_hourly (
    connector_type text COLLATE "C" NOT NULL,
    endpoint_identity text COLLATE "C" NOT NULL,
    hour timestamptz NOT NULL,
    messages_ingested bigint NOT NULL DEFAULT 0,
    messages_failed bigint NOT NULL DEFAULT 0,
    source_api_calls bigint NOT NULL DEFAULT 0,
    dedupe_accepted bigint NOT NULL DEFAULT 0,
    heartbeat_count bigint NOT NULL DEFAULT 0,
    healthy_count bigint NOT NULL DEFAULT 0,
    degraded_count bigint NOT NULL DEFAULT 0,
    error_count bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (connector_type, endpoint_identity, hour)
) WITH (fillfactor = 80);
CREATE INDEX connector_stats_hourly_age ON tenure.connector_stats_hourly (hour);

CREATE TABLE tenure.connector_stats_daily (
    connector_type text COLLATE "C" NOT NULL,
    endpoint_identity text COLLATE "C" NOT NULL,
    day date NOT NULL,
    messages_ingested bigint NOT NULL DEFAULT 0,
    messages_failed bigint NOT NULL DEFAULT 0,
    source_api_calls bigint NOT NULL DEFAULT 0,
    dedupe_accepted bigint NOT NULL DEFAULT 0,
    heartbeat_count bigint NOT NULL DEFAULT 0,
    healthy_count bigint NOT NULL DEFAULT 0,
    degraded_count bigint NOT NULL DEFAULT 0,
    error_count bigint NOT NULL DEFAULT 0,
    -- How much of what was heard was healthy; null when nothing was heard.
    uptime_pct numeric(5, 2),
    PRIMARY KEY (connector_type, endpoint_identity, day)
) WITH (fillfactor = 80);
-- With the names: a page of connectors finds what they did today side by side.
CREATE INDEX connector_stats_daily_age
    ON tenure.connector_stats_daily (day, connector_type, endpoint_identity);

-- How many messages each target has acknowledged.
CREATE TABLE tenure.connector_fanout_daily (
    connector_type text COLLATE "C" NOT NULL,
    endpoint_identity text COLLATE "C" NOT NULL,
    target_butler text COLLATE "C" NOT NULL,
    day date NOT NULL,
    message_count bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (connector_type, endpoint_identity, target_butler, day)
);
CREATE INDEX connector_fanout_daily_age ON tenure.connector_fanout_daily (day);

-- What each connector did in the periods that are asked for: grows with what is counted, shrinks
-- with what leaves the period. It saves adding up millions of rows for a page.
CREATE TABLE tenure.connector_stats_window (
    connector_type text COLLATE "C" NOT NULL,
    endpoint_identity text COLLATE "C" NOT NULL,
    -- 24h, 7d or 30d.
    period text COLLATE "C" NOT NULL,
    messages_ingested bigint NOT NULL DEFAULT 0,
    messages_failed bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (connector_type, endpoint_identity, period)
) WITH (fillfactor = 70);

-- One row: how far counting is.
CREATE TABLE tenure.connector_stats_progress (
    only_row boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Everything that was received before this was counted.
    counted timestamptz NOT NULL,
    -- Nothing is received before this any more.
    ceiling timestamptz NOT NULL,
    -- Under which hold it was counted last.
    epoch bigint NOT NULL DEFAULT 0,
    -- Where the periods began when they were counted last.
    since_24h timestamptz NOT NULL,
    since_7d timestamptz NOT NULL,
    since_30d timestamptz NOT NULL
);
INSERT INTO tenure.connector_stats_progress (counted, ceiling, since_24h, since_7d, since_30d)
VALUES ('epoch', 'epoch', 'epoch', 'epoch', 'epoch');

-- To whom messages went.
CREATE TABLE tenure.inbox_outcome (
    request_id uuid NOT NULL,
    target text COLLATE "C" NOT NULL,
    connector_type text NOT NULL,
    endpoint_identity text NOT NULL,
    reported_at timestamptz NOT NULL,
    -- Null while it has failed.
    acked_at timestamptz,
    PRIMARY KEY (request_id, target)
);
CREATE INDEX inbox_outcome_acked ON tenure.inbox_outcome (acked_at) WHERE acked_at IS NOT NULL;
CREATE INDEX inbox_outcome_age ON tenure.inbox_outcome (reported_at);

-- The replicas that run, and where they can be reached by each other.
CREATE TABLE tenure.switchboard_replica (
    replica_id uuid NOT NULL PRIMARY KEY,
    address text NOT NULL,
    seen_at timestamptz NOT NULL
);
