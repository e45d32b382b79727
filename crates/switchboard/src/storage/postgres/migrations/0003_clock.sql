--! breaking: retention and counting go by what older versions do not keep
-- The clock by which retention deletes. It follows the server's clock, never goes back, and never
-- runs faster than twice the time that replicas have measured.
CREATE TABLE tenure.switchboard_clock (
    only_row boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (only_row),
    reached timestamptz NOT NULL,
    -- How often it was moved: a replica tells by it whether another one has moved it since.
    turn bigint NOT NULL DEFAULT 0
);
-- Not later than what was stored last: one reading of the server's clock may be wrong.
INSERT INTO tenure.switchboard_clock (reached)
SELECT least(clock_timestamp(), greatest(
    (SELECT m.received_at FROM tenure.message_inbox m ORDER BY m.position DESC LIMIT 1),
    (SELECT max(d.last_seen_at) FROM tenure.ingest_dedupe d)));

-- What is to be counted is numbered as it arrives: heartbeats by their id, acknowledgements by a
-- number of the same sequence. Times say in which hour something counts, not whether it was
-- counted. Numbers up to counted_id are counted; up to bound_id nothing more is stored.
ALTER TABLE tenure.connector_stats_progress
    ADD COLUMN counted_id bigint NOT NULL DEFAULT 0, ADD COLUMN bound_id bigint NOT NULL DEFAULT 0;
ALTER TABLE tenure.inbox_outcome ADD COLUMN arrival bigint;
UPDATE tenure.connector_stats_progress
SET counted_id = nextval('tenure.connector_heartbeat_log_id_seq');
UPDATE tenure.connector_heartbeat_log SET id = DEFAULT
WHERE received_at >= (SELECT counted FROM tenure.connector_stats_progress);
UPDATE tenure.inbox_outcome SET arrival = nextval('tenure.connector_heartbeat_log_id_seq')
WHERE acked_at >= (SELECT counted FROM tenure.connector_stats_progress);
DROP INDEX tenure.inbox_outcome_acked;
CREATE INDEX inbox_outcome_arrival ON tenure.inbox_outcome (arrival) WHERE arrival IS NOT NULL;
ALTER TABLE tenure.connector_heartbeat_log DROP CONSTRAINT connector_heartbeat_log_pkey;
ALTER TABLE tenure.connector_heartbeat_log ADD PRIMARY KEY (id, received_at);
ALTER TABLE tenure.connector_stats_progress DROP COLUMN counted, DROP COLUMN ceiling;
DROP FUNCTION IF EXISTS tenure.connector_bound(bigint, timestamptz);
DROP FUNCTION IF EXISTS tenure.connector_roll_up(bigint);
