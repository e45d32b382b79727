--! breaking: older versions drop counters and labels that have no column
-- Counters and labels that have no column of their own: a JSON object.
ALTER TABLE connector_registry ADD COLUMN more TEXT;
ALTER TABLE connector_instances ADD COLUMN more TEXT;
ALTER TABLE connector_heartbeat_log ADD COLUMN more TEXT;
