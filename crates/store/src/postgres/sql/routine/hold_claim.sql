-- Claims duties for a session. One row per duty, `item` counting from 1 in the given order:
-- granted, already (with epoch), held (with holder and remaining_ms if known) or no_session.
--
-- This and the other batch functions look up each row by its key (LATERAL ... OFFSET 0) and write
-- it by its key (ON CONFLICT), so that no plan, even one made for a small table or batch, compares
-- every name with every other. `xmin` identifies rows written by this transaction.
CREATE OR REPLACE FUNCTION tenure.hold_claim(
    p_group text, p_instance text, p_nonce uuid,
    p_duties text[], p_floors bigint[], p_reason text
) RETURNS TABLE (
    item bigint, outcome text, epoch bigint, mark bigint, holder text, remaining_ms bigint
) LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_mark bigint;
    v_granted bigint;
    v_duties text[];
    v_floors bigint[];
BEGIN
    PERFORM tenure.check_isolation();
    SELECT left_count INTO v_mark FROM tenure.session
    WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
        AND NOT ended AND NOT evicted AND expires_at > clock_timestamp();
    IF NOT FOUND THEN
        RETURN QUERY SELECT w.item, 'no_session', NULL::bigint, NULL::bigint, NULL, NULL::bigint
        FROM unnest(p_duties) WITH ORDINALITY AS w(duty, item);
        RETURN;
    END IF;

    INSERT INTO tenure.hold (group_name, duty, epoch, instance, nonce, held)
    SELECT p_group, w.duty, 0, '', '00000000-0000-4000-8000-000000000000', false
    FROM unnest(p_duties) AS w(duty)
    LEFT JOIN LATERAL (
        SELECT true AS is_there FROM tenure.hold x
        WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
    ) AS h ON true
    WHERE h.is_there IS NULL
    ORDER BY w.duty COLLATE "C"
    ON CONFLICT (group_name, duty) DO NOTHING;

    -- A row locked by another transaction is in use by a commit or an effect, or is being claimed:
    -- it counts as held. So a holder stuck in a transaction does not delay claims of other duties.
    -- From here on only rows locked here are considered: a row unlocked later may have a holder
    -- whose session a later statement does not see yet.
    SELECT array_agg(w.duty), array_agg(w.floor) INTO v_duties, v_floors FROM (
        SELECT u.duty, u.floor FROM unnest(p_duties, p_floors) AS u(duty, floor)
        ORDER BY u.duty COLLATE "C" OFFSET 0
    ) AS w CROSS JOIN LATERAL (
        SELECT FROM tenure.hold x
        WHERE x.group_name = p_group AND x.duty = w.duty FOR UPDATE SKIP LOCKED
    ) AS locked;

    -- Keeps our own session unchanged until this transaction ends: an eviction waits for this
    -- claim, or this claim sees it.
    PERFORM FROM tenure.session
    WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
        AND NOT ended AND NOT evicted FOR KEY SHARE;
    IF NOT FOUND THEN
        v_duties := NULL;
    END IF;

    -- Sessions that look expired are locked, checked again, and ended for good. A keep-alive that
    -- began before the expiry and is not committed yet holds that lock; a later one finds the
    -- session ended. Without both, a keep-alive and a takeover can succeed together.
    WITH holder AS (
        SELECT DISTINCT h.instance, h.nonce FROM unnest(v_duties) AS w(duty)
        CROSS JOIN LATERAL (
            SELECT x.instance, x.nonce FROM tenure.hold x
            WHERE x.group_name = p_group AND x.duty = w.duty AND x.held OFFSET 0
        ) AS h
    ), suspect AS (
        SELECT s.instance FROM (SELECT * FROM holder ORDER BY instance OFFSET 0) AS o
        CROSS JOIN LATERAL (
            SELECT x.instance FROM tenure.session x
            WHERE x.group_name = p_group AND x.instance = o.instance AND x.nonce = o.nonce
                AND NOT x.ended AND NOT (clock_timestamp() < x.expires_at
                    AND x.expires_at <= clock_timestamp() + x.ttl)
            FOR NO KEY UPDATE
        ) AS s
    )
    UPDATE tenure.session s SET
        ended = s.expires_at <= clock_timestamp(),
        -- More than a TTL ahead: the server's clock was set back. One TTL from now is enough.
        expires_at = least(s.expires_at, clock_timestamp() + s.ttl)
    FROM suspect WHERE s.group_name = p_group AND s.instance = suspect.instance;

    -- From here on the column `ended` decides; the clock is not read again. The floors are read
    -- after the locks are taken: forgetting a duty stores its epoch there before its row can be
    -- created again.
    WITH free AS MATERIALIZED (
        SELECT h.duty, h.epoch, h.instance, h.held,
            greatest(h.epoch, w.floor, c.epoch,
                (SELECT epoch FROM tenure.group_floor WHERE group_name = p_group),
                (SELECT floor FROM tenure.store WHERE only_row)) + 1 AS next_epoch
        FROM unnest(v_duties, v_floors) AS w(duty, floor)
        CROSS JOIN LATERAL (
            SELECT x.duty, x.epoch, x.instance, x.nonce, x.held FROM tenure.hold x
            WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
        ) AS h
        LEFT JOIN LATERAL (
            SELECT x.epoch FROM tenure.checkpoint x
            WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
        ) AS c ON true
        LEFT JOIN LATERAL (
            SELECT true AS lives FROM tenure.session x
            WHERE x.group_name = p_group AND x.instance = h.instance AND x.nonce = h.nonce
                AND NOT x.ended OFFSET 0
        ) AS s ON true
        WHERE NOT (h.held AND coalesce(s.lives, false))
    ), granted AS (
        INSERT INTO tenure.hold (group_name, duty, epoch, instance, nonce, held)
        SELECT p_group, duty, next_epoch, p_instance, p_nonce, true FROM free
        ORDER BY duty COLLATE "C"
        ON CONFLICT (group_name, duty) DO UPDATE SET
            epoch = excluded.epoch, instance = excluded.instance, nonce = excluded.nonce,
            held = true
    ), entry AS (
        SELECT 1 AS step, duty, 'expired' AS kind, instance, epoch FROM free WHERE held
        UNION ALL SELECT 2, duty, 'granted', p_instance, next_epoch FROM free
    ), recorded AS (
        INSERT INTO tenure.audit (group_name, kind, instance, duty, epoch, reason)
        SELECT p_group, kind, instance, duty, epoch, p_reason FROM entry ORDER BY duty, step
    )
    SELECT count(*) INTO v_granted FROM free;
    IF v_granted > 0 THEN
        PERFORM pg_notify('tenure.changes', p_group);
    END IF;
    IF cardinality(p_duties) > coalesce(cardinality(v_duties), 0) THEN
        PERFORM tenure.effect_end(
            p_group, ARRAY(SELECT unnest(p_duties) EXCEPT SELECT unnest(v_duties)));
    END IF;

    RETURN QUERY SELECT w.item,
        CASE WHEN s.nonce = p_nonce AND h.is_new THEN 'granted'
            WHEN s.nonce = p_nonce THEN 'already'
            ELSE 'held' END,
        h.epoch, v_mark, s.instance,
        greatest(0, extract(epoch FROM s.expires_at - clock_timestamp()) * 1000)::bigint
    FROM unnest(p_duties) WITH ORDINALITY AS w(duty, item)
    LEFT JOIN LATERAL (
        SELECT x.epoch, x.instance, x.nonce, x.held,
            x.xmin = pg_current_xact_id()::xid AS is_new
        FROM tenure.hold x WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
    ) AS h ON true
    LEFT JOIN LATERAL (
        SELECT x.instance, x.nonce, x.expires_at FROM tenure.session x
        WHERE x.group_name = p_group AND x.instance = h.instance AND x.nonce = h.nonce
            AND h.held AND NOT x.ended OFFSET 0
    ) AS s ON true
    ORDER BY w.item;
END $$;
