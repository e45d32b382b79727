--! breaking: older versions do not note since when the history is whole
-- How often a counter has jumped by the size of a Unix time.
ALTER TABLE connector_instances ADD COLUMN jumps INTEGER NOT NULL DEFAULT 0;

-- The history has every beat from this day on: so far back a connector can be counted again.
ALTER TABLE connector_stats_progress ADD COLUMN beats_since INTEGER NOT NULL DEFAULT 0;
UPDATE connector_stats_progress SET beats_since = coalesce(
    (SELECT (min(received_at) / 86400000000 + 1) * 86400000000 FROM connector_heartbeat_log),
    (SELECT (unixepoch(max(day)) + 86400) * 1000000 FROM connector_stats_daily),
    0);
