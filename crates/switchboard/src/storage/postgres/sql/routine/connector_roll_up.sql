
-- Counts the next ten thousand numbers up to the bound.
CREATE OR REPLACE FUNCTION tenure.connector_roll_up(p_epoch bigint, p_at timestamptz)
RETURNS TABLE (fenced boolean, beats bigint, outcomes bigint, behind bigint, more boolean)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    c_most CONSTANT bigint := 9007199254740991;
    v_now timestamptz := coalesce(p_at, tenure.switchboard_now());
    v_old tenure.connector_stats_progress%ROWTYPE;
    v_end bigint;
    v_behind bigint := 0;
    v_since_24h timestamptz;
    v_since_7d timestamptz;
    v_since_30d timestamptz;
    v_period text;
    v_was timestamptz;
    v_since timestamptz;
    v_length interval;
    v_beats bigint := 0;
    v_outcomes bigint := 0;
BEGIN
    PERFORM tenure.ingest_isolation();
    SELECT * INTO STRICT v_old FROM tenure.connector_stats_progress WHERE only_row FOR UPDATE;
    IF p_epoch < v_old.epoch THEN
        RETURN QUERY SELECT true, 0::bigint, 0::bigint, 0::bigint, false;
        RETURN;
    END IF;
    v_end := greatest(least(v_old.counted_id + 10000, v_old.bound_id), v_old.counted_id);
    IF v_end < v_old.bound_id THEN
        SELECT coalesce(greatest(0, extract(epoch FROM v_now - max(l.received_at)) * 1000000), 0)
        INTO v_behind FROM tenure.connector_heartbeat_log l
        WHERE l.id > v_old.counted_id AND l.id <= v_end;
    END IF;
    v_since_24h := date_trunc('hour', v_now, 'UTC') - interval '23 hours';
    v_since_7d := date_trunc('hour', v_now, 'UTC') - interval '167 hours';
    -- In hours: a day in the session's time zone may have more or fewer than 24.
    v_since_30d := date_trunc('day', v_now, 'UTC') - interval '696 hours';

    -- First move the periods to their new start, with what was counted before. Usually only the
    -- hours or days that leave a period are subtracted; after a clock step it is summed up anew.
    FOR v_period, v_was, v_since, v_length IN SELECT p.* FROM (VALUES
        ('24h', v_old.since_24h, v_since_24h, interval '24 hours'),
        ('7d', v_old.since_7d, v_since_7d, interval '168 hours'),
        ('30d', v_old.since_30d, v_since_30d, interval '720 hours')) AS p
    LOOP
        IF v_since > v_was AND v_since < v_was + v_length THEN
            UPDATE tenure.connector_stats_window w SET
                messages_ingested = greatest(w.messages_ingested - gone.ingested, 0),
                messages_failed = greatest(w.messages_failed - gone.failed, 0)
            FROM tenure.connector_period(v_period, v_was, v_since) AS gone
            WHERE w.connector_type = gone.connector_type
                AND w.endpoint_identity = gone.endpoint_identity AND w.period = v_period;
        ELSIF v_since <> v_was THEN
            DELETE FROM tenure.connector_stats_window w WHERE w.period = v_period;
            INSERT INTO tenure.connector_stats_window
            SELECT k.connector_type, k.endpoint_identity, v_period, k.ingested, k.failed
            FROM tenure.connector_period(v_period, v_since, 'infinity') AS k
            WHERE k.ingested > 0 OR k.failed > 0;
        END IF;
    END LOOP;

    IF v_end > v_old.counted_id THEN
        v_beats := tenure.connector_count(v_old.counted_id, v_end, NULL, NULL, NULL, v_since_24h,
            v_since_7d, v_since_30d);
        WITH part AS MATERIALIZED (
            SELECT o.connector_type, o.endpoint_identity, o.target,
                (o.acked_at AT TIME ZONE 'UTC')::date AS day, count(*) AS messages
            FROM tenure.inbox_outcome o
            WHERE o.arrival > v_old.counted_id AND o.arrival <= v_end
            GROUP BY 1, 2, 3, 4
        ), fanned AS (
            INSERT INTO tenure.connector_fanout_daily AS f SELECT * FROM part
            ON CONFLICT (connector_type, endpoint_identity, target_butler, day) DO UPDATE
            SET message_count = f.message_count + excluded.message_count
        )
        SELECT coalesce(sum(p.messages), 0) INTO v_outcomes FROM part p;
    END IF;
    UPDATE tenure.connector_stats_progress SET counted_id = v_end, epoch = p_epoch,
        since_24h = v_since_24h, since_7d = v_since_7d, since_30d = v_since_30d
    WHERE only_row;
    RETURN QUERY SELECT false, v_beats, v_outcomes, v_behind, v_end < v_old.bound_id;
END $$;
