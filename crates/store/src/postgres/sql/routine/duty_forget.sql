-- Forgets duties that nobody holds. One row per known duty, `item` counting from 1 in the given
-- order: forgotten (with the floor of its group) or held (with holder and remaining_ms).
--
-- Holds are locked in key order, then sessions, as everywhere. Under the locks no commit, claim or
-- effect runs; a claim skips rows locked here, and finds either the row or the floor. A row that
-- did not exist to be locked is not considered: it may be a new hold.
CREATE OR REPLACE FUNCTION tenure.duty_forget(
    p_groups text[], p_duties text[], p_reason text
) RETURNS TABLE (item bigint, outcome text, floor bigint, holder text, remaining_ms bigint)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_items bigint[];
    v_duty record;
    v_hold tenure.hold%ROWTYPE;
    v_epoch bigint;
    v_last text;
BEGIN
    PERFORM tenure.check_isolation();
    -- A checkpoint or report without a hold gets a row to lock, the same that a claim would create.
    INSERT INTO tenure.hold (group_name, duty, epoch, instance, nonce, held)
    SELECT w.group_name, w.duty, 0, '', '00000000-0000-4000-8000-000000000000', false
    FROM unnest(p_groups, p_duties) AS w(group_name, duty)
    LEFT JOIN LATERAL (
        SELECT true AS is_there FROM tenure.hold x
        WHERE x.group_name = w.group_name AND x.duty = w.duty OFFSET 0
    ) AS h ON true
    WHERE h.is_there IS NULL AND (EXISTS (
        SELECT FROM tenure.checkpoint x
        WHERE x.group_name = w.group_name AND x.duty = w.duty OFFSET 0
    ) OR EXISTS (
        SELECT FROM tenure.history x
        WHERE x.group_name = w.group_name AND x.duty = w.duty OFFSET 0
    ) OR EXISTS (
        SELECT FROM tenure.report x
        WHERE x.group_name = w.group_name AND x.duty = w.duty OFFSET 0
    ))
    ORDER BY w.group_name COLLATE "C", w.duty COLLATE "C"
    ON CONFLICT (group_name, duty) DO NOTHING;

    SELECT array_agg(w.item) INTO v_items FROM (
        SELECT u.group_name, u.duty, u.item
        FROM unnest(p_groups, p_duties) WITH ORDINALITY AS u(group_name, duty, item)
        ORDER BY u.group_name COLLATE "C", u.duty COLLATE "C" OFFSET 0
    ) AS w CROSS JOIN LATERAL (
        SELECT FROM tenure.hold x
        WHERE x.group_name = w.group_name AND x.duty = w.duty FOR UPDATE
    ) AS locked;

    -- As in hold_claim: sessions that look expired are locked, checked again, and ended for good,
    -- so that no keep-alive succeeds together with this.
    FOR v_duty IN
        SELECT DISTINCT h.group_name, h.instance, h.nonce FROM unnest(v_items) AS w(item)
        CROSS JOIN LATERAL (
            SELECT x.group_name, x.instance, x.nonce FROM tenure.hold x
            WHERE x.group_name = p_groups[w.item] AND x.duty = p_duties[w.item] AND x.held OFFSET 0
        ) AS h
        ORDER BY h.group_name, h.instance
    LOOP
        UPDATE tenure.session s SET
            ended = s.expires_at <= clock_timestamp(),
            expires_at = least(s.expires_at, clock_timestamp() + s.ttl)
        WHERE s.group_name = v_duty.group_name AND s.instance = v_duty.instance
            AND s.nonce = v_duty.nonce AND NOT s.ended AND NOT (clock_timestamp() < s.expires_at
                AND s.expires_at <= clock_timestamp() + s.ttl);
    END LOOP;

    -- From here on the column `ended` decides; the clock is not read again.
    FOREACH item IN ARRAY coalesce(v_items, '{}') LOOP
        SELECT * INTO v_hold FROM tenure.hold x
        WHERE x.group_name = p_groups[item] AND x.duty = p_duties[item];
        floor := NULL;
        SELECT 'held', s.instance,
            greatest(0, extract(epoch FROM s.expires_at - clock_timestamp()) * 1000)::bigint
        INTO outcome, holder, remaining_ms FROM tenure.session s
        WHERE s.group_name = v_hold.group_name AND s.instance = v_hold.instance
            AND s.nonce = v_hold.nonce AND v_hold.held AND NOT s.ended;
        IF FOUND THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        SELECT max(k.epoch), (array_agg(k.instance ORDER BY k.epoch DESC))[1]
        INTO v_epoch, v_last FROM (
            SELECT v_hold.epoch, v_hold.instance WHERE v_hold.epoch > 0
            UNION ALL SELECT x.epoch, x.instance FROM tenure.checkpoint x
            WHERE x.group_name = v_hold.group_name AND x.duty = v_hold.duty
            UNION ALL SELECT x.epoch, x.instance FROM tenure.history x
            WHERE x.group_name = v_hold.group_name AND x.duty = v_hold.duty
            UNION ALL SELECT x.epoch, x.instance FROM tenure.report x
            WHERE x.group_name = v_hold.group_name AND x.duty = v_hold.duty
        ) AS k;
        DELETE FROM tenure.hold x
        WHERE x.group_name = v_hold.group_name AND x.duty = v_hold.duty;
        -- The row came from a claim that granted nothing.
        CONTINUE WHEN v_epoch IS NULL;
        DELETE FROM tenure.checkpoint x
        WHERE x.group_name = v_hold.group_name AND x.duty = v_hold.duty;
        DELETE FROM tenure.history x
        WHERE x.group_name = v_hold.group_name AND x.duty = v_hold.duty;
        DELETE FROM tenure.report x
        WHERE x.group_name = v_hold.group_name AND x.duty = v_hold.duty;
        -- The floor rises in the transaction that deletes the epoch (R2).
        INSERT INTO tenure.group_floor AS f (group_name, epoch) VALUES (v_hold.group_name, v_epoch)
        ON CONFLICT (group_name) DO UPDATE SET epoch = greatest(f.epoch, excluded.epoch)
        RETURNING f.epoch INTO floor;
        INSERT INTO tenure.audit (group_name, kind, instance, duty, epoch, reason)
        VALUES (v_hold.group_name, 'forgotten', v_last, v_hold.duty, v_epoch, p_reason);
        PERFORM pg_notify('tenure.changes', v_hold.group_name);
        outcome := 'forgotten';
        floor := greatest(floor, (SELECT s.floor FROM tenure.store s WHERE s.only_row));
        RETURN NEXT;
    END LOOP;
END $$;
