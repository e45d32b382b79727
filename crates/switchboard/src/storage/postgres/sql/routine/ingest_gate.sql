
-- Checks tokens and fences, one of each per gate; stores the fences that pass. Returns the gates
-- that stay closed: revoked, expired or gone for a token; ahead for an epoch that no store can have
-- granted; full if the source has too many fences; fenced with the newest hold, or fenced_by_all if
-- the token must not learn it. The caller has locked inbox_position.
CREATE OR REPLACE FUNCTION tenure.ingest_gate(
    p_tokens text[], p_duties text[], p_epochs bigint[], p_instances text[]
) RETURNS TABLE (gate bigint, verdict text, epoch bigint, instance text, updated_at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    -- Stores that derive epochs from their clock start at its microseconds.
    v_last constant bigint :=
        extract(epoch FROM clock_timestamp() + interval '1 day') * 1000000;
    v_most constant bigint := 10000;
BEGIN
    RETURN QUERY WITH asked AS MATERIALIZED (
        SELECT u.gate, u.duty, u.epoch, u.instance, s.source, t.channel, t.provider, t.endpoint,
            CASE WHEN u.token IS NULL THEN NULL
                WHEN t.token_id IS NULL THEN 'gone'
                WHEN t.revoked_at IS NOT NULL THEN 'revoked'
                WHEN t.expires_at <= clock_timestamp() THEN 'expired' END AS ended,
            f.epoch AS seen_epoch, f.instance AS seen_instance, f.updated_at AS seen_at,
            f.source IS DISTINCT FROM s.source AS is_of_all
        FROM unnest(p_tokens, p_duties, p_epochs, p_instances)
            WITH ORDINALITY AS u(token, duty, epoch, instance, gate)
        LEFT JOIN LATERAL (
            -- A token without a scope submits nothing, and must not match all sources.
            SELECT x.token_id, x.revoked_at, x.expires_at,
                coalesce(x.scope_channel, '-') AS channel,
                coalesce(x.scope_provider, '-') AS provider,
                coalesce(x.scope_endpoint_identity, '-') AS endpoint
            FROM tenure.connector_tokens x WHERE x.token_id = u.token OFFSET 0
        ) AS t ON true
        -- The lengths make the text unambiguous.
        CROSS JOIN LATERAL (SELECT CASE WHEN u.token IS NULL THEN '' ELSE sha256(convert_to(
            format('%s %s %s %s %s', length(t.channel), t.channel, length(t.provider),
                t.provider, t.endpoint), 'UTF8')) END AS source) AS s
        LEFT JOIN LATERAL (
            SELECT x.source, x.epoch, x.instance, x.updated_at FROM tenure.ingest_fence x
            WHERE x.duty = u.duty AND x.source IN (s.source, '')
            ORDER BY x.epoch DESC, x.source DESC LIMIT 1
        ) AS f ON true
    ), ranked AS MATERIALIZED (
        -- Of equal epochs a stored one comes first, then the first gate of this group.
        SELECT a.*, row_number() OVER newest AS place,
            first_value(a.epoch) OVER newest AS best_epoch,
            first_value(a.instance) OVER newest AS best_instance
        FROM asked a WHERE a.ended IS NULL AND a.duty IS NOT NULL AND a.epoch <= v_last
        WINDOW newest AS (PARTITION BY a.duty, a.source ORDER BY a.epoch DESC, a.gate)
    ), raised AS MATERIALIZED (
        SELECT r.*, is_new AND r.source <> '' AND row_number() OVER (
                PARTITION BY r.source, is_new ORDER BY r.gate
            ) + (
                SELECT count(*) FROM (SELECT FROM tenure.ingest_fence x
                WHERE is_new AND x.source = r.source LIMIT v_most) AS kept
            ) > v_most AS is_full
        FROM ranked r
        CROSS JOIN LATERAL (SELECT NOT EXISTS (
            SELECT FROM tenure.ingest_fence x WHERE x.duty = r.duty AND x.source = r.source
        ) AS is_new) AS n
        WHERE r.place = 1 AND (r.seen_epoch IS NULL OR r.seen_epoch < r.epoch)
    ), remembered AS (
        INSERT INTO tenure.ingest_fence AS f (duty, source, source_channel, source_provider,
            source_endpoint_identity, epoch, instance, updated_at)
        SELECT r.duty, r.source, coalesce(r.channel, ''), coalesce(r.provider, ''),
            coalesce(r.endpoint, ''), r.epoch, r.instance, clock_timestamp()
        FROM raised r WHERE NOT r.is_full
        ORDER BY r.duty COLLATE "C", r.source
        ON CONFLICT (duty, source) DO UPDATE SET epoch = excluded.epoch,
            instance = excluded.instance, updated_at = excluded.updated_at
    )
    SELECT a.gate, coalesce(a.ended, 'ahead'), NULL::bigint, NULL::text, NULL::timestamptz
    FROM asked a WHERE a.ended IS NOT NULL OR a.epoch > v_last
    UNION ALL
    SELECT r.gate, 'full', NULL, NULL, NULL FROM ranked r
    WHERE EXISTS (SELECT FROM raised x
        WHERE x.is_full AND x.duty = r.duty AND x.source = r.source)
    UNION ALL
    SELECT r.gate, n.verdict, n.epoch, n.instance, n.updated_at
    FROM ranked r
    CROSS JOIN LATERAL (
        SELECT CASE WHEN r.is_of_all THEN 'fenced_by_all' ELSE 'fenced' END AS verdict,
            r.seen_epoch AS epoch, r.seen_instance AS instance, r.seen_at AS updated_at
        WHERE r.seen_epoch >= r.best_epoch
        UNION ALL
        SELECT 'fenced', r.best_epoch, r.best_instance, clock_timestamp()
        WHERE r.seen_epoch IS NULL OR r.seen_epoch < r.best_epoch
    ) AS n
    WHERE (r.epoch, r.instance) <> (n.epoch, n.instance);
END $$;
