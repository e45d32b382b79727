-- Times are Unix microseconds; days are texts.
-- What is known of each connector. Counters are the sum of what all its instances have done.
CREATE TABLE connector_registry (
    connector_type TEXT NOT NULL,
    endpoint_identity TEXT NOT NULL,
    instance_id BLOB,
    version TEXT,
    state TEXT NOT NULL DEFAULT 'unknown',
    error_message TEXT,
    uptime_s INTEGER,
    last_heartbeat_at INTEGER,
    first_seen_at INTEGER NOT NULL,
    registered_via TEXT NOT NULL DEFAULT 'self',
    counter_messages_ingested INTEGER NOT NULL DEFAULT 0,
    counter_messages_failed INTEGER NOT NULL DEFAULT 0,
    counter_source_api_calls INTEGER NOT NULL DEFAULT 0,
    counter_checkpoint_saves INTEGER NOT NULL DEFAULT 0,
    counter_dedupe_accepted INTEGER NOT NULL DEFAULT 0,
    checkpoint_cursor TEXT,
    checkpoint_updated_at INTEGER,
    -- With which token it was registered: a token may register a few.
    registered_token_id TEXT,
    archived_at INTEGER,
    -- Of the newest beat of any instance, in microseconds.
    interval_micros INTEGER,
    drift_micros INTEGER,
    PRIMARY KEY (connector_type, endpoint_identity)
) STRICT;
CREATE INDEX connector_registry_endpoint ON connector_registry (endpoint_identity);
CREATE INDEX connector_registry_token ON connector_registry (registered_token_id)
    WHERE registered_token_id IS NOT NULL;

-- Each process of a connector, with its newest counters.
CREATE TABLE connector_instances (
    connector_type TEXT NOT NULL,
    endpoint_identity TEXT NOT NULL,
    instance_id BLOB NOT NULL,
    version TEXT,
    state TEXT NOT NULL,
    error_message TEXT,
    uptime_s INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    first_seen_at INTEGER NOT NULL,
    last_heartbeat_at INTEGER NOT NULL,
    -- At most five minutes after its arrival.
    last_sent_at INTEGER NOT NULL,
    stopped_at INTEGER,
    counter_messages_ingested INTEGER NOT NULL,
    counter_messages_failed INTEGER NOT NULL,
    counter_source_api_calls INTEGER NOT NULL,
    counter_checkpoint_saves INTEGER NOT NULL,
    counter_dedupe_accepted INTEGER NOT NULL,
    -- What the history was not told yet, because it could not be written.
    owed_messages_ingested INTEGER NOT NULL DEFAULT 0,
    owed_messages_failed INTEGER NOT NULL DEFAULT 0,
    owed_source_api_calls INTEGER NOT NULL DEFAULT 0,
    owed_checkpoint_saves INTEGER NOT NULL DEFAULT 0,
    owed_dedupe_accepted INTEGER NOT NULL DEFAULT 0,
    checkpoint_cursor TEXT,
    checkpoint_updated_at INTEGER,
    capabilities TEXT,
    interval_micros INTEGER,
    drift_micros INTEGER NOT NULL,
    beats INTEGER NOT NULL,
    late INTEGER NOT NULL DEFAULT 0,
    resets INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (connector_type, endpoint_identity, instance_id)
) STRICT;
CREATE INDEX connector_instances_age ON connector_instances (last_heartbeat_at);

-- The history.
CREATE TABLE connector_heartbeat_log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    connector_type TEXT NOT NULL,
    endpoint_identity TEXT NOT NULL,
    instance_id BLOB NOT NULL,
    state TEXT NOT NULL,
    error_message TEXT,
    uptime_s INTEGER NOT NULL,
    counter_messages_ingested INTEGER NOT NULL,
    counter_messages_failed INTEGER NOT NULL,
    counter_source_api_calls INTEGER NOT NULL,
    counter_checkpoint_saves INTEGER NOT NULL,
    counter_dedupe_accepted INTEGER NOT NULL,
    delta_messages_ingested INTEGER NOT NULL,
    delta_messages_failed INTEGER NOT NULL,
    delta_source_api_calls INTEGER NOT NULL,
    delta_checkpoint_saves INTEGER NOT NULL,
    delta_dedupe_accepted INTEGER NOT NULL,
    late INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    sent_at INTEGER NOT NULL
) STRICT;
CREATE INDEX connector_heartbeat_log_connector ON connector_heartbeat_log
    (connector_type, endpoint_identity, received_at DESC, id DESC);
CREATE INDEX connector_heartbeat_log_age ON connector_heartbeat_log (received_at);

CREATE TABLE connector_stats_hourly (
    connector_type TEXT NOT NULL,
    endpoint_identity TEXT NOT NULL,
    hour INTEGER NOT NULL,
    messages_ingested INTEGER NOT NULL DEFAULT 0,
    messages_failed INTEGER NOT NULL DEFAULT 0,
    source_api_calls INTEGER NOT NULL DEFAULT 0,
    dedupe_accepted INTEGER NOT NULL DEFAULT 0,
    heartbeat_count INTEGER NOT NULL DEFAULT 0,
    healthy_count INTEGER NOT NULL DEFAULT 0,
    degraded_count INTEGER NOT NULL DEFAULT 0,
    error_count INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (connector_type, endpoint_identity, hour)
) STRICT;
CREATE INDEX connector_stats_hourly_age ON connector_stats_hourly (hour);

CREATE TABLE connector_stats_daily (
    connector_type TEXT NOT NULL,
    endpoint_identity TEXT NOT NULL,
    day TEXT NOT NULL,
    messages_ingested INTEGER NOT NULL DEFAULT 0,
    messages_failed INTEGER NOT NULL DEFAULT 0,
    source_api_calls INTEGER NOT NULL DEFAULT 0,
    dedupe_accepted INTEGER NOT NULL DEFAULT 0,
    heartbeat_count INTEGER NOT NULL DEFAULT 0,
    healthy_count INTEGER NOT NULL DEFAULT 0,
    degraded_count INTEGER NOT NULL DEFAULT 0,
    error_count INTEGER NOT NULL DEFAULT 0,
    -- How much of what was heard was healthy; null when nothing was heard.
    uptime_pct REAL,
    PRIMARY KEY (connector_type, endpoint_identity, day)
) STRICT;
CREATE INDEX connector_stats_daily_age ON connector_stats_daily (day);

-- How many messages each target has acknowledged.
CREATE TABLE connector_fanout_daily (
    connector_type TEXT NOT NULL,
    endpoint_identity TEXT NOT NULL,
    target_butler TEXT NOT NULL,
    day TEXT NOT NULL,
    message_count INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (connector_type, endpoint_identity, target_butler, day)
) STRICT;
CREATE INDEX connector_fanout_daily_age ON connector_fanout_daily (day);

-- What each connector did in the periods that are asked for: grows with what is counted, shrinks
-- with what leaves the period. It saves adding up millions of rows for a page.
CREATE TABLE connector_stats_window (
    connector_type TEXT NOT NULL,
    endpoint_identity TEXT NOT NULL,
    -- 24h, 7d or 30d.
    period TEXT NOT NULL,
    messages_ingested INTEGER NOT NULL DEFAULT 0,
    messages_failed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (connector_type, endpoint_identity, period)
) STRICT;

-- One row: how far counting is.
CREATE TABLE connector_stats_progress (
    only_row INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    -- Everything that was received before this was counted.
    counted INTEGER NOT NULL,
    -- Nothing is received before this any more.
    ceiling INTEGER NOT NULL,
    -- Under which hold it was counted last.
    epoch INTEGER NOT NULL DEFAULT 0,
    -- Where the periods began when they were counted last.
    since_24h INTEGER NOT NULL,
    since_7d INTEGER NOT NULL,
    since_30d INTEGER NOT NULL
) STRICT;
INSERT INTO connector_stats_progress (counted, ceiling, since_24h, since_7d, since_30d)
VALUES (0, 0, 0, 0, 0);

-- To whom messages went.
CREATE TABLE inbox_outcome (
    request_id BLOB NOT NULL,
    target TEXT NOT NULL,
    connector_type TEXT NOT NULL,
    endpoint_identity TEXT NOT NULL,
    reported_at INTEGER NOT NULL,
    -- Null while it has failed.
    acked_at INTEGER,
    PRIMARY KEY (request_id, target)
) STRICT;
CREATE INDEX inbox_outcome_acked ON inbox_outcome (acked_at) WHERE acked_at IS NOT NULL;
CREATE INDEX inbox_outcome_age ON inbox_outcome (reported_at);

-- The replicas that run, and where they can be reached by each other.
CREATE TABLE switchboard_replica (
    replica_id BLOB NOT NULL PRIMARY KEY,
    address TEXT NOT NULL,
    seen_at INTEGER NOT NULL
) STRICT;
