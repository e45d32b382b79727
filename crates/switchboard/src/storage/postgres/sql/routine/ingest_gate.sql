
-- Judges tokens and fences, one of each per gate, and remembers the fences that pass. Only gates
-- that stay closed come back: revoked, expired or gone for a token; fenced with the newest hold.
-- The caller has locked inbox_position.
CREATE OR REPLACE FUNCTION tenure.ingest_gate(
    p_tokens text[], p_duties text[], p_epochs bigint[], p_instances text[]
) RETURNS TABLE (gate bigint, verdict text, epoch bigint, instance text, updated_at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH asked AS MATERIALIZED (
        SELECT u.gate, u.duty, u.epoch, u.instance,
            CASE WHEN u.token IS NULL THEN NULL
                WHEN t.token_id IS NULL THEN 'gone'
                WHEN t.revoked_at IS NOT NULL THEN 'revoked'
                WHEN t.expires_at <= clock_timestamp() THEN 'expired' END AS ended,
            f.epoch AS seen_epoch, f.instance AS seen_instance, f.updated_at AS seen_at
        FROM unnest(p_tokens, p_duties, p_epochs, p_instances)
            WITH ORDINALITY AS u(token, duty, epoch, instance, gate)
        LEFT JOIN LATERAL (
            SELECT x.token_id, x.revoked_at, x.expires_at
            FROM tenure.connector_tokens x WHERE x.token_id = u.token OFFSET 0
        ) AS t ON true
        LEFT JOIN LATERAL (
            SELECT x.epoch, x.instance, x.updated_at
            FROM tenure.ingest_fence x WHERE x.duty = u.duty OFFSET 0
        ) AS f ON true
    ), ranked AS MATERIALIZED (
        -- What was seen before comes first among equals, then who is first in this group.
        SELECT a.*, row_number() OVER newest AS place,
            first_value(a.epoch) OVER newest AS best_epoch,
            first_value(a.instance) OVER newest AS best_instance
        FROM asked a WHERE a.ended IS NULL AND a.duty IS NOT NULL
        WINDOW newest AS (PARTITION BY a.duty ORDER BY a.epoch DESC, a.gate)
    ), remembered AS (
        INSERT INTO tenure.ingest_fence AS f (duty, epoch, instance, updated_at)
        SELECT r.duty, r.epoch, r.instance, clock_timestamp() FROM ranked r
        WHERE r.place = 1 AND (r.seen_epoch IS NULL OR r.seen_epoch < r.epoch)
        ORDER BY r.duty COLLATE "C"
        ON CONFLICT (duty) DO UPDATE SET epoch = excluded.epoch, instance = excluded.instance,
            updated_at = excluded.updated_at
    )
    SELECT a.gate, a.ended, NULL::bigint, NULL::text, NULL::timestamptz
    FROM asked a WHERE a.ended IS NOT NULL
    UNION ALL
    SELECT r.gate, 'fenced', n.epoch, n.instance, n.updated_at
    FROM ranked r
    CROSS JOIN LATERAL (
        SELECT r.seen_epoch AS epoch, r.seen_instance AS instance, r.seen_at AS updated_at
        WHERE r.seen_epoch >= r.best_epoch
        UNION ALL
        SELECT r.best_epoch, r.best_instance, clock_timestamp()
        WHERE r.seen_epoch IS NULL OR r.seen_epoch < r.best_epoch
    ) AS n
    WHERE (r.epoch, r.instance) <> (n.epoch, n.instance);
END $$;
