--! breaking: older versions do not note since when the history is whole
-- How often a counter has jumped by the size of a Unix time.
ALTER TABLE tenure.connector_instances ADD COLUMN jumps bigint NOT NULL DEFAULT 0;

-- The history has every beat from this day on: so far back a connector can be counted again.
ALTER TABLE tenure.connector_stats_progress
    ADD COLUMN beats_since timestamptz NOT NULL DEFAULT 'epoch';
UPDATE tenure.connector_stats_progress SET beats_since = coalesce(
    (SELECT date_trunc('day', min(l.received_at), 'UTC') + interval '24 hours'
        FROM tenure.connector_heartbeat_log l),
    (SELECT (max(d.day) + 1)::timestamp AT TIME ZONE 'UTC' FROM tenure.connector_stats_daily d),
    'epoch');
DROP FUNCTION IF EXISTS tenure.connector_beat(timestamptz, text, bigint, bigint, text, text, uuid,
    text, text, text, boolean, bigint, bigint[], text, timestamptz, text, timestamptz);
