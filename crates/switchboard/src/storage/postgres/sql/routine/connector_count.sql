
-- Returns the part of a counter's growth that counts. Some clients add a counter's creation time to
-- its value: such a counter jumps by one or a few Unix times, which is not growth.
CREATE OR REPLACE FUNCTION tenure.connector_grown(p_grown bigint, p_at timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN p_grown >= 1000000000 AND t.now >= 1000000000
            AND round(p_grown / t.now) BETWEEN 1 AND 16
            AND abs(p_grown - round(p_grown / t.now) * t.now)
                <= round(p_grown / t.now) * 31622400
        THEN 0 ELSE p_grown END
    FROM (SELECT nullif(floor(extract(epoch FROM p_at)), 0) AS now) AS t
$$;

-- Returns the sums per connector of a period's hours or days from one time until before another.
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

-- Counts heartbeats with ids after p_after and up to p_upto: of all connectors, or of one since
-- p_from. Returns their number. Late heartbeats are not counted.
CREATE OR REPLACE FUNCTION tenure.connector_count(
    p_after bigint, p_upto bigint, p_type text, p_endpoint text, p_from timestamptz,
    p_since_24h timestamptz, p_since_7d timestamptz, p_since_30d timestamptz
) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    c_most CONSTANT bigint := 9007199254740991;
    v_beats bigint;
BEGIN
    WITH part AS MATERIALIZED (
        SELECT l.connector_type, l.endpoint_identity,
            date_trunc('hour', l.received_at, 'UTC') AS hour,
            sum(tenure.connector_grown(l.delta_messages_ingested, l.received_at)) AS ingested,
            sum(tenure.connector_grown(l.delta_messages_failed, l.received_at)) AS failed,
            sum(tenure.connector_grown(l.delta_source_api_calls, l.received_at)) AS api_calls,
            sum(tenure.connector_grown(l.delta_dedupe_accepted, l.received_at)) AS dedupe,
            count(*) AS beats,
            count(*) FILTER (WHERE l.state = 'healthy') AS healthy,
            count(*) FILTER (WHERE l.state = 'degraded') AS degraded,
            count(*) FILTER (WHERE l.state = 'error') AS error
        FROM (
            SELECT * FROM tenure.connector_heartbeat_log x
            WHERE p_type IS NULL AND x.id > p_after AND x.id <= p_upto
            UNION ALL
            SELECT * FROM tenure.connector_heartbeat_log x
            WHERE x.connector_type = p_type AND x.endpoint_identity = p_endpoint
                AND x.received_at >= p_from AND x.id > p_after AND x.id <= p_upto
        ) AS l
        WHERE NOT l.late
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
        FROM part p JOIN (VALUES ('24h', p_since_24h), ('7d', p_since_7d),
            ('30d', p_since_30d)) AS s(period, since) ON p.hour >= s.since
        WHERE p.ingested > 0 OR p.failed > 0
        GROUP BY 1, 2, 3
        ON CONFLICT (connector_type, endpoint_identity, period) DO UPDATE SET
            messages_ingested = least(w.messages_ingested + excluded.messages_ingested,
                c_most),
            messages_failed = least(w.messages_failed + excluded.messages_failed, c_most)
    )
    SELECT coalesce(sum(p.beats), 0) INTO v_beats FROM part p;
    RETURN v_beats;
END $$;
