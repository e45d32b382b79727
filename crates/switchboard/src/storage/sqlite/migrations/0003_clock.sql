--! breaking: retention and counting go by what older versions do not keep
-- The clock by which retention deletes. It follows the wall clock, never goes back, and never runs
-- faster than twice the time that processes have measured.
CREATE TABLE switchboard_clock (
    only_row INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    reached INTEGER NOT NULL,
    -- How often it was moved: a process tells by it whether another one has moved it since.
    turn INTEGER NOT NULL DEFAULT 0
) STRICT;
-- Not later than what was stored last: one reading of the wall clock may be wrong.
INSERT INTO switchboard_clock (reached)
SELECT min(unixepoch() * 1000000, coalesce(max(stored), unixepoch() * 1000000)) FROM (
    SELECT max(last_seen_at) AS stored FROM ingest_dedupe
    UNION ALL
    SELECT received_at FROM message_inbox
        WHERE position = (SELECT max(position) FROM message_inbox));

-- What is to be counted is numbered as it arrives: heartbeats by their id, acknowledgements by a
-- number of their own. Times say in which hour something counts, not whether it was counted.
ALTER TABLE connector_stats_progress ADD COLUMN counted_beat INTEGER NOT NULL DEFAULT 0;
ALTER TABLE connector_stats_progress ADD COLUMN counted_ack INTEGER NOT NULL DEFAULT 0;
ALTER TABLE connector_stats_progress ADD COLUMN last_ack INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox_outcome ADD COLUMN arrival INTEGER;
UPDATE connector_stats_progress SET
    counted_beat = (SELECT coalesce(max(id), 0) FROM connector_heartbeat_log),
    last_ack = (SELECT coalesce(max(rowid), 0) FROM inbox_outcome);
UPDATE connector_heartbeat_log SET id = id + (SELECT counted_beat FROM connector_stats_progress)
WHERE received_at >= (SELECT counted FROM connector_stats_progress);
-- An update does not move it, and a number that was counted is not given again.
UPDATE sqlite_sequence
SET seq = max(seq, (SELECT coalesce(max(id), 0) FROM connector_heartbeat_log))
WHERE name = 'connector_heartbeat_log';
UPDATE inbox_outcome SET arrival = rowid
WHERE acked_at >= (SELECT counted FROM connector_stats_progress);
DROP INDEX inbox_outcome_acked;
CREATE INDEX inbox_outcome_arrival ON inbox_outcome (arrival) WHERE arrival IS NOT NULL;
ALTER TABLE connector_stats_progress DROP COLUMN counted;
ALTER TABLE connector_stats_progress DROP COLUMN ceiling;
