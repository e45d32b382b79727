
-- Stores the rows that result from a heartbeat, given as JSON objects by column; p_connector is
-- null if the connector's row stays unchanged. p_version is the hash of the rows that were read
-- before (state.sql); p_owing has the columns that p_instance gets if the history cannot be
-- written. One row: `taken`, `changed` if the rows must be read again, or a refusal.
--
-- Heartbeats share a lock that connector_bound takes exclusively, so no heartbeat gets a number
-- below the bound that it has set.
CREATE OR REPLACE FUNCTION tenure.connector_beat_apply(
    p_token text, p_max_per_token bigint, p_version bigint, p_is_told boolean, p_instance text,
    p_owing text, p_connector text, p_history text
) RETURNS TABLE (verdict text, unwritten text)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_beat tenure.connector_heartbeat_log%ROWTYPE;
    v_is_known boolean;
    v_version bigint;
    v_oldest timestamptz;
BEGIN
    PERFORM tenure.ingest_isolation();
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('tenure.connector_stats_progress', 0));
    v_beat := json_populate_record(NULL::tenure.connector_heartbeat_log, p_history::json);
    PERFORM FROM tenure.connector_registry r WHERE r.connector_type = v_beat.connector_type
        AND r.endpoint_identity = v_beat.endpoint_identity FOR UPDATE;
    v_is_known := FOUND;
    IF NOT v_is_known THEN
        -- Registrations with one token are serialised.
        PERFORM FROM tenure.connector_tokens t WHERE t.token_id = p_token FOR NO KEY UPDATE;
    END IF;
    verdict := tenure.token_ended(p_token, false);
    IF verdict IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM FROM tenure.connector_instances i WHERE i.connector_type = v_beat.connector_type
        AND i.endpoint_identity = v_beat.endpoint_identity AND i.instance_id = v_beat.instance_id
    FOR UPDATE;
    SELECT hash_record_extended(ROW(r, i, s), 0) INTO v_version
    FROM (VALUES (true)) AS one(row)
    LEFT JOIN tenure.connector_registry r ON r.connector_type = v_beat.connector_type
        AND r.endpoint_identity = v_beat.endpoint_identity
    LEFT JOIN tenure.connector_instances i ON i.connector_type = v_beat.connector_type
        AND i.endpoint_identity = v_beat.endpoint_identity AND i.instance_id = v_beat.instance_id
    LEFT JOIN tenure.connector_instances s ON s.connector_type = r.connector_type
        AND s.endpoint_identity = r.endpoint_identity AND s.instance_id = r.instance_id
        AND s.instance_id <> v_beat.instance_id;
    -- An arrival time read long ago, or before the clock of retention, must be read again.
    SELECT greatest(c.reached, clock_timestamp() - interval '5 seconds') INTO v_oldest
    FROM tenure.switchboard_clock c WHERE c.only_row;
    IF v_version <> p_version OR (v_beat.received_at < v_oldest AND NOT p_is_told) THEN
        verdict := 'changed';
        RETURN NEXT;
        RETURN;
    END IF;
    IF NOT v_is_known THEN
        IF (SELECT count(*) FROM tenure.connector_registry r
            WHERE r.registered_token_id = p_token) >= p_max_per_token
        THEN
            verdict := 'too_many';
            RETURN NEXT;
            RETURN;
        END IF;
        INSERT INTO tenure.connector_registry
            (connector_type, endpoint_identity, first_seen_at, registered_token_id)
        VALUES (v_beat.connector_type, v_beat.endpoint_identity, v_beat.received_at, p_token)
        ON CONFLICT (connector_type, endpoint_identity) DO NOTHING;
        IF NOT FOUND THEN
            verdict := 'changed';
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    verdict := 'taken';
    BEGIN
        INSERT INTO tenure.connector_heartbeat_log (connector_type, endpoint_identity,
            instance_id, state, error_message, uptime_s, late, received_at, sent_at, more,
            counter_messages_ingested, counter_messages_failed, counter_source_api_calls,
            counter_checkpoint_saves, counter_dedupe_accepted, delta_messages_ingested,
            delta_messages_failed, delta_source_api_calls, delta_checkpoint_saves,
            delta_dedupe_accepted)
        VALUES (v_beat.connector_type, v_beat.endpoint_identity, v_beat.instance_id,
            v_beat.state, v_beat.error_message, v_beat.uptime_s, v_beat.late,
            v_beat.received_at, v_beat.sent_at, v_beat.more, v_beat.counter_messages_ingested,
            v_beat.counter_messages_failed, v_beat.counter_source_api_calls,
            v_beat.counter_checkpoint_saves, v_beat.counter_dedupe_accepted,
            v_beat.delta_messages_ingested, v_beat.delta_messages_failed,
            v_beat.delta_source_api_calls, v_beat.delta_checkpoint_saves,
            v_beat.delta_dedupe_accepted);
    EXCEPTION WHEN OTHERS THEN
        -- Liveness matters more than the history. OTHERS does not include a cancelled statement.
        unwritten := SQLERRM;
        p_instance := (p_instance::jsonb || p_owing::jsonb)::text;
    END;
    INSERT INTO tenure.connector_instances (connector_type, endpoint_identity, instance_id, state,
        error_message, uptime_s, started_at, first_seen_at, last_heartbeat_at, stopped_at,
        checkpoint_cursor, checkpoint_updated_at, capabilities, interval_micros, drift_micros,
        beats, late, resets, jumps, more, version, counter_messages_ingested,
        counter_messages_failed, counter_source_api_calls, counter_checkpoint_saves,
        counter_dedupe_accepted, last_sent_at, owed_messages_ingested, owed_messages_failed,
        owed_source_api_calls, owed_checkpoint_saves, owed_dedupe_accepted)
    SELECT connector_type, endpoint_identity, instance_id, state, error_message, uptime_s,
        started_at, first_seen_at, last_heartbeat_at, stopped_at, checkpoint_cursor,
        checkpoint_updated_at, capabilities, interval_micros, drift_micros, beats, late, resets,
        jumps, more, version, counter_messages_ingested, counter_messages_failed,
        counter_source_api_calls, counter_checkpoint_saves, counter_dedupe_accepted, last_sent_at,
        owed_messages_ingested, owed_messages_failed, owed_source_api_calls, owed_checkpoint_saves,
        owed_dedupe_accepted
    FROM json_populate_record(NULL::tenure.connector_instances, p_instance::json)
    ON CONFLICT (connector_type, endpoint_identity, instance_id) DO UPDATE SET
        (state, error_message, uptime_s, started_at, last_heartbeat_at, stopped_at,
            checkpoint_cursor, checkpoint_updated_at, capabilities, interval_micros, drift_micros,
            beats, late, resets, jumps, more, version, counter_messages_ingested,
            counter_messages_failed, counter_source_api_calls, counter_checkpoint_saves,
            counter_dedupe_accepted, last_sent_at, owed_messages_ingested, owed_messages_failed,
            owed_source_api_calls, owed_checkpoint_saves, owed_dedupe_accepted)
        = ROW(excluded.state, excluded.error_message, excluded.uptime_s, excluded.started_at,
            excluded.last_heartbeat_at, excluded.stopped_at, excluded.checkpoint_cursor,
            excluded.checkpoint_updated_at, excluded.capabilities, excluded.interval_micros,
            excluded.drift_micros, excluded.beats, excluded.late, excluded.resets, excluded.jumps,
            excluded.more, excluded.version, excluded.counter_messages_ingested,
            excluded.counter_messages_failed, excluded.counter_source_api_calls,
            excluded.counter_checkpoint_saves, excluded.counter_dedupe_accepted,
            excluded.last_sent_at, excluded.owed_messages_ingested, excluded.owed_messages_failed,
            excluded.owed_source_api_calls, excluded.owed_checkpoint_saves,
            excluded.owed_dedupe_accepted);
    UPDATE tenure.connector_registry AS r SET archived_at = NULL,
        (instance_id, state, error_message, uptime_s, last_heartbeat_at, checkpoint_cursor,
            checkpoint_updated_at, interval_micros, drift_micros, more, version,
            counter_messages_ingested, counter_messages_failed, counter_source_api_calls,
            counter_checkpoint_saves, counter_dedupe_accepted)
        = ROW(n.instance_id, n.state, n.error_message, n.uptime_s, n.last_heartbeat_at,
            n.checkpoint_cursor, n.checkpoint_updated_at, n.interval_micros, n.drift_micros, n.more,
            n.version, n.counter_messages_ingested, n.counter_messages_failed,
            n.counter_source_api_calls, n.counter_checkpoint_saves, n.counter_dedupe_accepted)
    FROM json_populate_record(NULL::tenure.connector_registry, p_connector::json) AS n
    WHERE p_connector IS NOT NULL AND r.connector_type = v_beat.connector_type
        AND r.endpoint_identity = v_beat.endpoint_identity;
    RETURN NEXT;
END $$;
