--! breaking: older versions drop counters and labels that have no column
-- Counters and labels that have no column of their own: a JSON object.
ALTER TABLE tenure.connector_registry ADD COLUMN more text;
ALTER TABLE tenure.connector_instances ADD COLUMN more text;
ALTER TABLE tenure.connector_heartbeat_log ADD COLUMN more text;
