-- Rows of a connector before a heartbeat of the instance $3 at the time $4 or now: arrival, clock,
-- version, connector, that instance, and the representative if it is another one.
SELECT coalesce($4, tenure.switchboard_now()), coalesce($4, clock_timestamp()),
    hash_record_extended(ROW(r, i, s), 0),
    r.connector_type, r.endpoint_identity, r.instance_id, r.state, r.error_message, r.uptime_s,
    r.last_heartbeat_at, r.first_seen_at, r.registered_via, r.checkpoint_cursor,
    r.checkpoint_updated_at, r.archived_at, r.interval_micros, r.drift_micros, r.more, r.version,
    r.counter_messages_ingested, r.counter_messages_failed, r.counter_source_api_calls,
    r.counter_checkpoint_saves, r.counter_dedupe_accepted, i.instance_id, i.state, i.error_message,
    i.uptime_s, i.started_at, i.first_seen_at, i.last_heartbeat_at, i.stopped_at,
    i.checkpoint_cursor, i.checkpoint_updated_at, i.capabilities, i.interval_micros, i.drift_micros,
    i.beats, i.late, i.resets, i.jumps, i.more, i.version, i.counter_messages_ingested,
    i.counter_messages_failed, i.counter_source_api_calls, i.counter_checkpoint_saves,
    i.counter_dedupe_accepted, i.last_sent_at, i.owed_messages_ingested, i.owed_messages_failed,
    i.owed_source_api_calls, i.owed_checkpoint_saves, i.owed_dedupe_accepted, s.instance_id,
    s.state, s.error_message, s.uptime_s, s.started_at, s.first_seen_at, s.last_heartbeat_at,
    s.stopped_at, s.checkpoint_cursor, s.checkpoint_updated_at, s.capabilities, s.interval_micros,
    s.drift_micros, s.beats, s.late, s.resets, s.jumps, s.more, s.version,
    s.counter_messages_ingested, s.counter_messages_failed, s.counter_source_api_calls,
    s.counter_checkpoint_saves, s.counter_dedupe_accepted, s.last_sent_at, s.owed_messages_ingested,
    s.owed_messages_failed, s.owed_source_api_calls, s.owed_checkpoint_saves, s.owed_dedupe_accepted
FROM (VALUES (true)) AS one(row)
LEFT JOIN tenure.connector_registry r ON r.connector_type = $1 AND r.endpoint_identity = $2
LEFT JOIN tenure.connector_instances i ON i.connector_type = $1 AND i.endpoint_identity = $2
    AND i.instance_id = $3
LEFT JOIN tenure.connector_instances s ON s.connector_type = r.connector_type
    AND s.endpoint_identity = r.endpoint_identity AND s.instance_id = r.instance_id
    AND s.instance_id <> $3
