
-- What connectors have done in the hours or days of a period from a time on and before another.
CREATE OR REPLACE FUNCTION tenure.connector_period(
    p_period text, p_from timestamptz, p_before timestamptz
) RETURNS TABLE (connector_type text, endpoint_identity text, ingested bigint, failed bigint)
LANGUAGE sql STABLE AS $$
    SELECT h.connector_type, h.endpoint_identity,
        least(sum(h.messages_ingested), 9007199254740991)::bigint,
        least(sum(h.messages_failed), 9007199254740991)::bigint
    FROM tenure.connector_stats_hourly h
    WHERE p_period <> '30d' AND h.hour >= p_from AND h.hour < p_before GROUP BY 1, 2
    UNION ALL
    SELECT d.connector_type, d.endpoint_identity,
        least(sum(d.messages_ingested), 9007199254740991)::bigint,
        least(sum(d.messages_failed), 9007199254740991)::bigint
    FROM tenure.connector_stats_daily d
    WHERE p_period = '30d' AND d.day >= (p_from AT TIME ZONE 'UTC')::date
        AND d.day < (p_before AT TIME ZONE 'UTC')::date GROUP BY 1, 2
$$;

-- Counts the next ten thousand numbers of what arrived before the bound.
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
    -- In hours: a day of the session's time zone may have another number of them.
    v_since_30d := date_trunc('day', v_now, 'UTC') - interval '696 hours';

    -- First the periods move to where they begin now, with what was counted before. As a rule a
    -- little leaves them; when the clock has stepped, they are added up again.
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
        WITH part AS MATERIALIZED (
            SELECT l.connector_type, l.endpoint_identity,
                date_trunc('hour', l.received_at, 'UTC') AS hour,
                sum(l.delta_messages_ingested) AS ingested,
                sum(l.delta_messages_failed) AS failed,
                sum(l.delta_source_api_calls) AS api_calls,
                sum(l.delta_dedupe_accepted) AS dedupe, count(*) AS beats,
                count(*) FILTER (WHERE l.state = 'healthy') AS healthy,
                count(*) FILTER (WHERE l.state = 'degraded') AS degraded,
                count(*) FILTER (WHERE l.state = 'error') AS error
            FROM tenure.connector_heartbeat_log l
            WHERE l.id > v_old.counted_id AND l.id <= v_end
            GROUP BY 1, 2, 3
        ), hourly AS (
            INSERT INTO tenure.connector_stats_hourly AS h
            SELECT p.connector_type, p.endpoint_identity, p.hour, least(p.ingested, c_most),
                least(p.failed, c_most), least(p.api_calls, c_most), least(p.dedupe, c_most),
                p.beats, p.healthy, p.degraded, p.error
            FROM part p
            ON CONFLICT (connector_type, endpoint_identity, hour) DO UPDATE SET
                messages_ingested = least(h.messages_ingested + excluded.messages_ingested,
                    c_most),
                messages_failed = least(h.messages_failed + excluded.messages_failed, c_most),
                source_api_calls = least(h.source_api_calls + excluded.source_api_calls, c_most),
                dedupe_accepted = least(h.dedupe_accepted + excluded.dedupe_accepted, c_most),
                heartbeat_count = h.heartbeat_count + excluded.heartbeat_count,
                healthy_count = h.healthy_count + excluded.healthy_count,
                degraded_count = h.degraded_count + excluded.degraded_count,
                error_count = h.error_count + excluded.error_count
        ), daily AS (
            INSERT INTO tenure.connector_stats_daily AS d
            SELECT p.connector_type, p.endpoint_identity, (p.hour AT TIME ZONE 'UTC')::date,
                least(sum(p.ingested), c_most), least(sum(p.failed), c_most),
                least(sum(p.api_calls), c_most), least(sum(p.dedupe), c_most), sum(p.beats),
                sum(p.healthy), sum(p.degraded), sum(p.error),
                round(100 * sum(p.healthy) / sum(p.beats), 2)
            FROM part p GROUP BY 1, 2, 3
            ON CONFLICT (connector_type, endpoint_identity, day) DO UPDATE SET
                messages_ingested = least(d.messages_ingested + excluded.messages_ingested,
                    c_most),
                messages_failed = least(d.messages_failed + excluded.messages_failed, c_most),
                source_api_calls = least(d.source_api_calls + excluded.source_api_calls, c_most),
                dedupe_accepted = least(d.dedupe_accepted + excluded.dedupe_accepted, c_most),
                heartbeat_count = d.heartbeat_count + excluded.heartbeat_count,
                healthy_count = d.healthy_count + excluded.healthy_count,
                degraded_count = d.degraded_count + excluded.degraded_count,
                error_count = d.error_count + excluded.error_count,
                uptime_pct = round(100.0 * (d.healthy_count + excluded.healthy_count)
                    / (d.heartbeat_count + excluded.heartbeat_count), 2)
        ), periods AS (
            INSERT INTO tenure.connector_stats_window AS w
            SELECT p.connector_type, p.endpoint_identity, s.period, least(sum(p.ingested), c_most),
                least(sum(p.failed), c_most)
            FROM part p JOIN (VALUES ('24h', v_since_24h), ('7d', v_since_7d),
                ('30d', v_since_30d)) AS s(period, since) ON p.hour >= s.since
            WHERE p.ingested > 0 OR p.failed > 0
            GROUP BY 1, 2, 3
            ON CONFLICT (connector_type, endpoint_identity, period) DO UPDATE SET
                messages_ingested = least(w.messages_ingested + excluded.messages_ingested,
                    c_most),
                messages_failed = least(w.messages_failed + excluded.messages_failed, c_most)
        )
        SELECT coalesce(sum(p.beats), 0) INTO v_beats FROM part p;
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
