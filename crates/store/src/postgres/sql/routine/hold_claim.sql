-- Claims duties for a session. One row per duty, `item` counting from 1 as they were given:
-- granted, already (with epoch), held (with holder and remaining_ms if known) or no_session.
CREATE OR REPLACE FUNCTION tenure.hold_claim(
    p_group text, p_instance text, p_nonce uuid,
    p_duties text[], p_floors bigint[], p_reason text
) RETURNS TABLE (
    item bigint, outcome text, epoch bigint, mark bigint, holder text, remaining_ms bigint
) LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
#variable_conflict use_column
DECLARE
    v_mark bigint;
    v_mine text[];
    v_largest bigint;
BEGIN
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
    WHERE NOT EXISTS (
        SELECT FROM tenure.hold h WHERE h.group_name = p_group AND h.duty = w.duty
    )
    ORDER BY w.duty COLLATE "C"
    ON CONFLICT (group_name, duty) DO NOTHING;

    -- A row that somebody else has locked is being committed under, or claimed: it is held. So a
    -- holder that is stuck in a transaction delays nobody's other claims.
    SELECT array_agg(locked.duty) INTO v_mine FROM (
        SELECT h.duty FROM unnest(p_duties) AS w(duty)
        JOIN tenure.hold h ON h.group_name = p_group AND h.duty = w.duty
        ORDER BY h.duty FOR UPDATE OF h SKIP LOCKED
    ) AS locked;

    -- Sessions that look expired are locked, looked at again, and ended for good. A keep-alive
    -- that began before the expiry and is not committed yet holds that lock; one that comes later
    -- finds the session ended. Without both, keep-alive and takeover can succeed together.
    WITH suspect AS (
        SELECT s.group_name, s.instance FROM tenure.session s
        WHERE s.group_name = p_group AND NOT s.ended
            AND NOT (clock_timestamp() < s.expires_at
                AND s.expires_at <= clock_timestamp() + s.ttl)
            AND (s.instance, s.nonce) IN (
                SELECT h.instance, h.nonce FROM unnest(v_mine) AS m(duty)
                JOIN tenure.hold h ON h.group_name = p_group AND h.duty = m.duty
                WHERE h.held
            )
        ORDER BY s.instance FOR NO KEY UPDATE
    )
    UPDATE tenure.session s SET
        ended = s.expires_at <= clock_timestamp(),
        -- More than a TTL ahead: the server's clock was set back. One TTL from now is enough.
        expires_at = least(s.expires_at, clock_timestamp() + s.ttl)
    FROM suspect WHERE s.group_name = suspect.group_name AND s.instance = suspect.instance;

    -- From here on a session has ended if it says so; the clock is not asked again.
    WITH free AS (
        SELECT h.duty, h.epoch, h.instance, h.held, w.floor, c.epoch AS committed
        FROM unnest(p_duties, p_floors) AS w(duty, floor)
        JOIN unnest(v_mine) AS m(duty) ON m.duty = w.duty
        JOIN tenure.hold h ON h.group_name = p_group AND h.duty = w.duty
        LEFT JOIN tenure.checkpoint c ON c.group_name = p_group AND c.duty = w.duty
        WHERE NOT (h.held AND EXISTS (
            SELECT FROM tenure.session s
            WHERE s.group_name = p_group AND s.instance = h.instance AND s.nonce = h.nonce
                AND NOT s.ended
        ))
    ), granted AS (
        UPDATE tenure.hold h SET
            epoch = greatest(f.epoch, f.floor, f.committed) + 1,
            instance = p_instance, nonce = p_nonce, held = true
        FROM free f WHERE h.group_name = p_group AND h.duty = f.duty
        RETURNING h.duty, h.epoch
    ), entry AS (
        SELECT 1 AS step, duty, 'expired' AS kind, instance, epoch FROM free WHERE held
        UNION ALL SELECT 2, duty, 'granted', p_instance, epoch FROM granted
    ), recorded AS (
        INSERT INTO tenure.audit (group_name, kind, instance, duty, epoch, reason)
        SELECT p_group, kind, instance, duty, epoch, p_reason FROM entry ORDER BY duty, step
    )
    SELECT array_agg(duty), max(epoch) INTO v_mine, v_largest FROM granted;
    IF v_mine IS NOT NULL THEN
        PERFORM pg_notify('tenure.changes', p_group);
    END IF;

    RETURN QUERY SELECT w.item,
        CASE WHEN m.duty IS NOT NULL THEN 'granted'
            WHEN s.instance = p_instance AND s.nonce = p_nonce THEN 'already'
            ELSE 'held' END,
        h.epoch, v_mark, s.instance,
        greatest(0, extract(epoch FROM s.expires_at - clock_timestamp()) * 1000)::bigint
    FROM unnest(p_duties) WITH ORDINALITY AS w(duty, item)
    LEFT JOIN unnest(v_mine) AS m(duty) ON m.duty = w.duty
    LEFT JOIN tenure.hold h ON h.group_name = p_group AND h.duty = w.duty
    LEFT JOIN tenure.session s ON s.group_name = p_group AND s.instance = h.instance
        AND s.nonce = h.nonce AND h.held AND NOT s.ended
    ORDER BY w.item;
END $$;
