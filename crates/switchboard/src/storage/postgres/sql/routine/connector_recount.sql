
-- Recounts a connector from the first day that the history has in full. Returns why the token has
-- ended, and that day, or null if there is no such connector. Blocks other counting meanwhile.
CREATE OR REPLACE FUNCTION tenure.connector_recount(
    p_type text, p_endpoint text, p_path text, p_by text, p_reason text, p_token text
) RETURNS TABLE (ended text, since timestamptz)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_old tenure.connector_stats_progress%ROWTYPE;
    v_day date;
    v_before bigint[];
    v_after bigint[];
BEGIN
    PERFORM tenure.ingest_isolation();
    SELECT * INTO STRICT v_old FROM tenure.connector_stats_progress WHERE only_row FOR UPDATE;
    ended := tenure.token_ended(p_token, true);
    IF ended IS NULL THEN
        SELECT v_old.beats_since INTO since FROM tenure.connector_registry
        WHERE connector_type = p_type AND endpoint_identity = p_endpoint FOR UPDATE;
    END IF;
    RETURN NEXT;
    IF since IS NULL THEN
        RETURN;
    END IF;
    v_day := (v_old.beats_since AT TIME ZONE 'UTC')::date;
    v_before := tenure.connector_done(p_type, p_endpoint, v_day);
    DELETE FROM tenure.connector_stats_hourly WHERE connector_type = p_type
        AND endpoint_identity = p_endpoint AND hour >= v_old.beats_since;
    DELETE FROM tenure.connector_stats_daily WHERE connector_type = p_type
        AND endpoint_identity = p_endpoint AND day >= v_day;
    DELETE FROM tenure.connector_stats_window
    WHERE connector_type = p_type AND endpoint_identity = p_endpoint;
    INSERT INTO tenure.connector_stats_window
    SELECT p_type, p_endpoint, p.period, k.ingested, k.failed
    FROM (VALUES ('24h', v_old.since_24h), ('7d', v_old.since_7d), ('30d', v_old.since_30d))
        AS p(period, since)
    CROSS JOIN LATERAL tenure.connector_period(p.period, p.since, 'infinity') AS k
    WHERE k.connector_type = p_type AND k.endpoint_identity = p_endpoint;
    PERFORM tenure.connector_count(0, v_old.counted_id, p_type, p_endpoint, v_old.beats_since,
        v_old.since_24h, v_old.since_7d, v_old.since_30d);
    v_after := tenure.connector_done(p_type, p_endpoint, v_day);
    UPDATE tenure.connector_registry SET
        counter_messages_ingested =
            greatest(counter_messages_ingested - v_before[1] + v_after[1], 0),
        counter_messages_failed = greatest(counter_messages_failed - v_before[2] + v_after[2], 0),
        counter_source_api_calls =
            greatest(counter_source_api_calls - v_before[3] + v_after[3], 0),
        counter_dedupe_accepted = greatest(counter_dedupe_accepted - v_before[4] + v_after[4], 0)
    WHERE connector_type = p_type AND endpoint_identity = p_endpoint;
    INSERT INTO tenure.token_audit_log
        (token_id, action_type, operator_identity, reason, performed_at, metadata)
    VALUES (p_path, 'connector_recount', p_by, p_reason, clock_timestamp(),
        json_build_object('connector_type', p_type, 'endpoint_identity', p_endpoint)::text);
END $$;

-- Returns a connector's counted sums since a day.
CREATE OR REPLACE FUNCTION tenure.connector_done(p_type text, p_endpoint text, p_day date)
RETURNS bigint[] LANGUAGE sql STABLE AS $$
    SELECT ARRAY[coalesce(sum(d.messages_ingested), 0), coalesce(sum(d.messages_failed), 0),
        coalesce(sum(d.source_api_calls), 0), coalesce(sum(d.dedupe_accepted), 0)]::bigint[]
    FROM tenure.connector_stats_daily d
    WHERE d.connector_type = p_type AND d.endpoint_identity = p_endpoint AND d.day >= p_day
$$;
