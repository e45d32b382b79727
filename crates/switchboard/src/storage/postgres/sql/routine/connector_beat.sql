
-- Takes a heartbeat. One row: `taken`, or why nothing was stored.
--
-- Who receives something shares a lock with all others who do; who moves the bound of what will be
-- counted has it alone. So nothing is numbered before a bound after it was moved.
CREATE OR REPLACE FUNCTION tenure.connector_beat(
    p_at timestamptz, p_token text, p_most_per_token bigint, p_silent bigint, p_longest bigint,
    p_type text, p_endpoint text, p_instance uuid, p_version text, p_state text, p_error text,
    p_stopping boolean, p_uptime bigint, p_counters bigint[], p_cursor text,
    p_cursor_at timestamptz, p_capabilities text, p_sent timestamptz
) RETURNS TABLE (
    verdict text, received_at timestamptz, registered boolean, revived boolean, replaced uuid,
    late boolean, reset boolean, jumped boolean, drift bigint, drift_before bigint,
    unwritten text
)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    c_most CONSTANT bigint := 9007199254740991;
    v_now timestamptz;
    v_sent timestamptz;
    v_started timestamptz;
    v_is_locked boolean := p_token IS NULL;
    v_known tenure.connector_registry%ROWTYPE;
    v_before tenure.connector_instances%ROWTYPE;
    v_counted bigint[];
    v_owed bigint[];
    -- What the connector has done since, and what the history is told of it.
    v_done bigint[] := ARRAY[0, 0, 0, 0, 0];
    v_told bigint[] := ARRAY[0, 0, 0, 0, 0];
    v_gap bigint;
    v_interval bigint;
    v_stands boolean;
BEGIN
    PERFORM tenure.ingest_isolation();
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('tenure.connector_stats_progress', 0));
    registered := false;
    LOOP
        SELECT * INTO v_known FROM tenure.connector_registry r
        WHERE r.connector_type = p_type AND r.endpoint_identity = p_endpoint FOR UPDATE;
        verdict := tenure.token_ended(p_token, false);
        IF verdict IS NOT NULL THEN
            RETURN NEXT;
            RETURN;
        END IF;
        IF NOT registered THEN
            v_now := coalesce(p_at, tenure.switchboard_now());
        END IF;
        EXIT WHEN v_known.connector_type IS NOT NULL;
        IF NOT v_is_locked THEN
            -- Those who register with this token come one after another; then it looks again.
            PERFORM FROM tenure.connector_tokens t WHERE t.token_id = p_token FOR NO KEY UPDATE;
            v_is_locked := true;
            CONTINUE;
        END IF;
        IF (SELECT count(*) FROM tenure.connector_registry r
            WHERE r.registered_token_id = p_token) >= p_most_per_token
        THEN
            verdict := 'too_many';
            RETURN NEXT;
            RETURN;
        END IF;
        INSERT INTO tenure.connector_registry
            (connector_type, endpoint_identity, first_seen_at, registered_token_id)
        VALUES (p_type, p_endpoint, v_now, p_token)
        ON CONFLICT (connector_type, endpoint_identity) DO NOTHING;
        registered := FOUND;
    END LOOP;

    verdict := 'taken';
    received_at := v_now;
    revived := false;
    reset := false;
    jumped := false;
    drift := extract(epoch FROM v_now - p_sent) * 1000000;
    SELECT * INTO v_before FROM tenure.connector_instances i
    WHERE i.connector_type = p_type AND i.endpoint_identity = p_endpoint
        AND i.instance_id = p_instance FOR UPDATE;
    drift_before := v_before.drift_micros;
    v_sent := least(p_sent, v_now + interval '5 minutes');
    v_gap := extract(epoch FROM v_now - v_before.last_heartbeat_at) * 1000000;
    -- Of two that are both far ahead, the one that was sent first; the drift tells when.
    late := coalesce(v_before.uptime_s >= p_uptime AND (v_before.last_sent_at >= v_sent
        OR (p_sent > v_sent AND drift - drift_before >= v_gap)), false);
    IF late THEN
        UPDATE tenure.connector_instances SET beats = beats + 1, late = late + 1
        WHERE connector_type = p_type AND endpoint_identity = p_endpoint
            AND instance_id = p_instance;
    ELSE
        v_counted := ARRAY[v_before.counter_messages_ingested, v_before.counter_messages_failed,
            v_before.counter_source_api_calls, v_before.counter_checkpoint_saves,
            v_before.counter_dedupe_accepted];
        v_owed := ARRAY[v_before.owed_messages_ingested, v_before.owed_messages_failed,
            v_before.owed_source_api_calls, v_before.owed_checkpoint_saves,
            v_before.owed_dedupe_accepted];
        FOR v_n IN 1 .. 5 LOOP
            v_done[v_n] := p_counters[v_n];
            IF p_counters[v_n] >= v_counted[v_n] THEN
                v_done[v_n] := p_counters[v_n] - v_counted[v_n];
            ELSIF v_counted[v_n] IS NOT NULL THEN
                reset := true;
            END IF;
            IF tenure.connector_grown(v_done[v_n], v_now) <> v_done[v_n] THEN
                v_done[v_n] := 0;
                jumped := true;
            END IF;
            v_told[v_n] := least(v_done[v_n] + coalesce(v_owed[v_n], 0), c_most);
        END LOOP;
        -- Nothing that beats started before 1970, whatever it says.
        v_started := greatest('epoch', v_now - least(p_uptime, 9000000000) * interval '1 second');
        IF p_uptime >= v_before.uptime_s THEN
            v_started := least(v_started, v_before.started_at);
        END IF;
        v_interval := v_before.interval_micros;
        -- A time that the clock has not reached says nothing of the gap.
        IF v_gap >= 1000000 AND v_now <= coalesce(p_at, clock_timestamp()) THEN
            v_interval := coalesce((4 * v_interval + least(v_gap, 2 * v_interval)) / 5,
                least(v_gap, 3600000000));
        END IF;
        v_stands := v_known.instance_id IS NULL OR v_known.instance_id = p_instance;
        IF NOT v_stands THEN
            v_stands := coalesce((
                SELECT v_started > i.started_at OR i.stopped_at IS NOT NULL
                    OR v_now - i.last_heartbeat_at >= interval '1 microsecond'
                        * greatest(p_silent, 5 * CASE WHEN i.interval_micros > p_longest
                            THEN p_longest ELSE i.interval_micros END)
                FROM tenure.connector_instances i
                WHERE i.connector_type = p_type AND i.endpoint_identity = p_endpoint
                    AND i.instance_id = v_known.instance_id), true);
            IF v_stands THEN
                replaced := v_known.instance_id;
            END IF;
        END IF;
        INSERT INTO tenure.connector_instances AS i (connector_type, endpoint_identity,
            instance_id, version, state, error_message, uptime_s, started_at, first_seen_at,
            last_heartbeat_at, last_sent_at, stopped_at, counter_messages_ingested,
            counter_messages_failed, counter_source_api_calls, counter_checkpoint_saves,
            counter_dedupe_accepted, checkpoint_cursor, checkpoint_updated_at, capabilities,
            interval_micros, drift_micros, jumps, beats)
        VALUES (p_type, p_endpoint, p_instance, p_version, p_state, p_error, p_uptime, v_started,
            v_now, v_now, v_sent, CASE WHEN p_stopping THEN v_now END, p_counters[1],
            p_counters[2], p_counters[3], p_counters[4], p_counters[5], p_cursor, p_cursor_at,
            p_capabilities, v_interval, drift, jumped::integer, 1)
        ON CONFLICT (connector_type, endpoint_identity, instance_id) DO UPDATE SET
            version = excluded.version, state = excluded.state,
            error_message = excluded.error_message, uptime_s = excluded.uptime_s,
            started_at = excluded.started_at, last_heartbeat_at = excluded.last_heartbeat_at,
            last_sent_at = excluded.last_sent_at, stopped_at = excluded.stopped_at,
            counter_messages_ingested = excluded.counter_messages_ingested,
            counter_messages_failed = excluded.counter_messages_failed,
            counter_source_api_calls = excluded.counter_source_api_calls,
            counter_checkpoint_saves = excluded.counter_checkpoint_saves,
            counter_dedupe_accepted = excluded.counter_dedupe_accepted,
            owed_messages_ingested = 0, owed_messages_failed = 0, owed_source_api_calls = 0,
            owed_checkpoint_saves = 0, owed_dedupe_accepted = 0,
            checkpoint_cursor = coalesce(p_cursor, i.checkpoint_cursor),
            checkpoint_updated_at = CASE WHEN p_cursor IS NULL THEN i.checkpoint_updated_at
                ELSE p_cursor_at END,
            capabilities = coalesce(excluded.capabilities, i.capabilities),
            interval_micros = excluded.interval_micros, drift_micros = excluded.drift_micros,
            beats = i.beats + 1, resets = i.resets + reset::integer,
            jumps = i.jumps + excluded.jumps;
        -- Said once.
        jumped := jumped AND coalesce(v_before.jumps, 0) = 0;
        revived := v_known.archived_at IS NOT NULL;
        UPDATE tenure.connector_registry SET
            instance_id = CASE WHEN v_stands THEN p_instance ELSE instance_id END,
            version = CASE WHEN v_stands THEN p_version ELSE version END,
            state = CASE WHEN v_stands THEN p_state ELSE state END,
            error_message = CASE WHEN v_stands THEN p_error ELSE error_message END,
            uptime_s = CASE WHEN v_stands THEN p_uptime ELSE uptime_s END,
            checkpoint_cursor = CASE WHEN v_stands AND p_cursor IS NOT NULL THEN p_cursor
                ELSE checkpoint_cursor END,
            checkpoint_updated_at = CASE WHEN v_stands AND p_cursor IS NOT NULL THEN p_cursor_at
                ELSE checkpoint_updated_at END,
            last_heartbeat_at = v_now, interval_micros = v_interval, drift_micros = drift,
            archived_at = NULL,
            counter_messages_ingested = least(counter_messages_ingested + v_done[1], c_most),
            counter_messages_failed = least(counter_messages_failed + v_done[2], c_most),
            counter_source_api_calls = least(counter_source_api_calls + v_done[3], c_most),
            counter_checkpoint_saves = least(counter_checkpoint_saves + v_done[4], c_most),
            counter_dedupe_accepted = least(counter_dedupe_accepted + v_done[5], c_most)
        WHERE connector_type = p_type AND endpoint_identity = p_endpoint;
    END IF;

    BEGIN
        INSERT INTO tenure.connector_heartbeat_log (connector_type, endpoint_identity,
            instance_id, state, error_message, uptime_s, counter_messages_ingested,
            counter_messages_failed, counter_source_api_calls, counter_checkpoint_saves,
            counter_dedupe_accepted, delta_messages_ingested, delta_messages_failed,
            delta_source_api_calls, delta_checkpoint_saves, delta_dedupe_accepted, late,
            received_at, sent_at)
        VALUES (p_type, p_endpoint, p_instance, p_state, p_error, p_uptime, p_counters[1],
            p_counters[2], p_counters[3], p_counters[4], p_counters[5], v_told[1], v_told[2],
            v_told[3], v_told[4], v_told[5], late, v_now, p_sent);
    EXCEPTION WHEN OTHERS THEN
        -- That it lives is worth more than its history. Who cancels it still cancels all of it.
        unwritten := SQLERRM;
        IF NOT late THEN
            UPDATE tenure.connector_instances SET owed_messages_ingested = v_told[1],
                owed_messages_failed = v_told[2], owed_source_api_calls = v_told[3],
                owed_checkpoint_saves = v_told[4], owed_dedupe_accepted = v_told[5]
            WHERE connector_type = p_type AND endpoint_identity = p_endpoint
                AND instance_id = p_instance;
        END IF;
    END;
    RETURN NEXT;
END $$;
