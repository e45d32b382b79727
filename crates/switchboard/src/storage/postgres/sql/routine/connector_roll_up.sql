
-- Counts the next quarter of an hour of what was received before the bound.
CREATE OR REPLACE FUNCTION tenure.connector_roll_up(p_epoch bigint)
RETURNS TABLE (fenced boolean, beats bigint, outcomes bigint, upto timestamptz, more boolean)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    c_most CONSTANT bigint := 9007199254740991;
    v_old tenure.connector_stats_progress%ROWTYPE;
    v_from timestamptz;
    v_end timestamptz;
    v_upto timestamptz;
    v_more boolean := false;
    v_since_24h timestamptz;
    v_since_7d timestamptz;
    v_since_30d timestamptz;
    v_beats bigint := 0;
    v_outcomes bigint := 0;
BEGIN
    SELECT * INTO STRICT v_old FROM tenure.connector_stats_progress WHERE only_row FOR UPDATE;
    IF p_epoch < v_old.epoch THEN
        RETURN QUERY SELECT true, 0::bigint, 0::bigint, v_old.counted, false;
        RETURN;
    END IF;
    v_from := least(
        (SELECT min(l.received_at) FROM tenure.connector_heartbeat_log l
            WHERE l.received_at >= v_old.counted AND l.received_at < v_old.ceiling),
        (SELECT min(o.acked_at) FROM tenure.inbox_outcome o
            WHERE o.acked_at >= v_old.counted AND o.acked_at < v_old.ceiling));
    v_end := least(v_from + interval '15 minutes', v_old.ceiling);
    v_upto := greatest(v_old.counted, v_old.ceiling);
    IF EXISTS (SELECT FROM tenure.connector_heartbeat_log l
            WHERE l.received_at >= v_end AND l.received_at < v_old.ceiling)
        OR EXISTS (SELECT FROM tenure.inbox_outcome o
            WHERE o.acked_at >= v_end AND o.acked_at < v_old.ceiling)
    THEN
        v_more := true;
        v_upto := v_end;
    END IF;
    v_since_24h := date_trunc('hour', v_upto, 'UTC') - interval '23 hours';
    v_since_7d := date_trunc('hour', v_upto, 'UTC') - interval '167 hours';
    -- In hours: a day of the session's time zone may have another number of them.
    v_since_30d := date_trunc('day', v_upto, 'UTC') - interval '696 hours';

    -- What has left the periods, first: it was counted before.
    IF v_since_24h > v_old.since_24h THEN
        IF v_since_24h >= v_old.counted THEN
            -- Everything has left: there is nothing to add up.
            DELETE FROM tenure.connector_stats_window w
            WHERE w.period = '24h' OR (w.period = '7d' AND v_since_7d >= v_old.counted)
                OR (w.period = '30d' AND v_since_30d >= v_old.counted);
        END IF;
        UPDATE tenure.connector_stats_window w SET
            messages_ingested = greatest(w.messages_ingested - gone.ingested, 0),
            messages_failed = greatest(w.messages_failed - gone.failed, 0)
        FROM (
            SELECT h.connector_type, h.endpoint_identity, p.period,
                sum(h.messages_ingested) AS ingested, sum(h.messages_failed) AS failed
            FROM (VALUES ('24h', v_old.since_24h, v_since_24h),
                ('7d', v_old.since_7d, v_since_7d)) AS p(period, since, upto)
            JOIN tenure.connector_stats_hourly h ON h.hour >= p.since AND h.hour < p.upto
            WHERE p.upto < v_old.counted
            GROUP BY 1, 2, 3
            UNION ALL
            SELECT d.connector_type, d.endpoint_identity, '30d', sum(d.messages_ingested),
                sum(d.messages_failed)
            FROM tenure.connector_stats_daily d
            WHERE d.day >= (v_old.since_30d AT TIME ZONE 'UTC')::date
                AND d.day < (v_since_30d AT TIME ZONE 'UTC')::date
                AND v_since_30d < v_old.counted
            GROUP BY 1, 2
        ) AS gone
        WHERE w.connector_type = gone.connector_type
            AND w.endpoint_identity = gone.endpoint_identity AND w.period = gone.period;
    END IF;

    IF v_from IS NOT NULL THEN
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
            WHERE l.received_at >= v_from AND l.received_at < v_end
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
            FROM tenure.inbox_outcome o WHERE o.acked_at >= v_from AND o.acked_at < v_end
            GROUP BY 1, 2, 3, 4
        ), fanned AS (
            INSERT INTO tenure.connector_fanout_daily AS f SELECT * FROM part
            ON CONFLICT (connector_type, endpoint_identity, target_butler, day) DO UPDATE
            SET message_count = f.message_count + excluded.message_count
        )
        SELECT coalesce(sum(p.messages), 0) INTO v_outcomes FROM part p;
    END IF;
    UPDATE tenure.connector_stats_progress SET counted = v_upto, epoch = p_epoch,
        since_24h = v_since_24h, since_7d = v_since_7d, since_30d = v_since_30d
    WHERE only_row;
    RETURN QUERY SELECT false, v_beats, v_outcomes, v_upto, v_more;
END $$;
