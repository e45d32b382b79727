
-- Returns a page of one endpoint's messages. A plan that collects and sorts would read all messages
-- that the endpoint ever received, so the settings leave only the index scan, which stops early.
CREATE OR REPLACE FUNCTION tenure.inbox_endpoint(
    p_after bigint, p_limit bigint, p_channel text, p_provider text, p_sender text, p_thread text,
    p_since timestamptz, p_until timestamptz, p_endpoint text
) RETURNS TABLE (
    last bigint, trimmed bigint, upto bigint, more boolean, "position" bigint, request_id uuid,
    received_at timestamptz, source_channel text, source_provider text,
    source_endpoint_identity text, source_sender_identity text, source_thread_identity text,
    dedupe_key text, authenticated_token_id text, lifecycle_state text, envelope text,
    floor bigint, at_id uuid, upto_id uuid
)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_endpoint bigint := hashtextextended(p_endpoint, 0);
BEGIN
    RETURN QUERY
    WITH place AS MATERIALIZED (
        SELECT p.last, p.trimmed, p.floor, p.last_id,
            coalesce((SELECT x.request_id FROM tenure.message_inbox x WHERE x.position = p_after),
                CASE p_after WHEN p.last THEN p.last_id WHEN p.trimmed THEN p.trimmed_id END)
                AS at_id
        FROM tenure.inbox_position p WHERE p.only_row
    ), page AS MATERIALIZED (
        SELECT m.*, lead(true, 1, false) OVER line AS more,
            sum(octet_length(m.envelope)) OVER line - octet_length(m.envelope) AS bytes_before
        FROM (
            SELECT x.* FROM (
                SELECT y.* FROM tenure.message_inbox y
                WHERE (hashtextextended(y.source_endpoint_identity, 0), y.position)
                        > (v_endpoint, greatest(p_after, (SELECT trimmed FROM place)))
                    AND (hashtextextended(y.source_endpoint_identity, 0), y.position)
                        <= (v_endpoint, (SELECT last FROM place))
                ORDER BY hashtextextended(y.source_endpoint_identity, 0), y.position LIMIT 10000
            ) AS x
            WHERE x.source_endpoint_identity = p_endpoint
                AND (p_channel IS NULL OR x.source_channel = p_channel)
                AND (p_provider IS NULL OR x.source_provider = p_provider)
                AND (p_sender IS NULL OR x.source_sender_identity = p_sender)
                AND (p_thread IS NULL OR x.source_thread_identity = p_thread)
                AND (p_since IS NULL OR x.received_at >= p_since)
                AND (p_until IS NULL OR x.received_at < p_until)
            LIMIT p_limit
        ) AS m
        WINDOW line AS (ORDER BY m.position)
    ), bounds AS MATERIALIZED (
        -- The last position looked at; not needed for a full page.
        SELECT a.*, e.position AS upto, e.request_id AS upto_id
        FROM place a LEFT JOIN LATERAL (
            SELECT y.position, y.request_id FROM tenure.message_inbox y
            WHERE (SELECT count(*) FROM page) < p_limit
                AND (hashtextextended(y.source_endpoint_identity, 0), y.position)
                    > (v_endpoint, greatest(p_after, a.trimmed))
                AND (hashtextextended(y.source_endpoint_identity, 0), y.position)
                    <= (v_endpoint, a.last)
            ORDER BY hashtextextended(y.source_endpoint_identity, 0), y.position
            OFFSET 9999 LIMIT 1
        ) AS e ON true
    )
    SELECT b.last, b.trimmed, coalesce(b.upto, b.last), p.more, p.position, p.request_id,
        p.received_at, p.source_channel, p.source_provider, p.source_endpoint_identity,
        p.source_sender_identity, p.source_thread_identity, p.dedupe_key,
        p.authenticated_token_id, p.lifecycle_state, p.envelope, b.floor, b.at_id,
        coalesce(b.upto_id, b.last_id)
    FROM bounds b LEFT JOIN page p ON p.bytes_before < 4194304
    ORDER BY p.position;
END $$;
