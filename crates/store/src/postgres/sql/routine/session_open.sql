-- Forgets nonces of a group whose sessions ended more than a week ago. A nonce that a session or a
-- held hold still has is remembered for another week: its reuse would revive what has ended (R9).
--
-- Nothing here waits, so the caller may hold any locks. Only nonces locked first are forgotten: a
-- transaction that removes a session refreshes its nonce before the removal is visible. Holds are
-- read only when there is something to forget, and then once.
CREATE OR REPLACE FUNCTION tenure.spent_sweep(p_group text) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_limit constant timestamptz := clock_timestamp() - interval '7 days';
    v_old uuid[];
    v_carried uuid[];
BEGIN
    SELECT array_agg(o.nonce) INTO v_old FROM (
        SELECT x.nonce FROM tenure.spent x
        WHERE x.group_name = p_group AND x.used_at < v_limit FOR UPDATE SKIP LOCKED
    ) AS o;
    IF v_old IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(c.nonce) INTO v_carried FROM (
        SELECT x.nonce FROM tenure.session x WHERE x.group_name = p_group
        UNION SELECT x.nonce FROM tenure.hold x WHERE x.group_name = p_group AND x.held
        OFFSET 0
    ) AS c CROSS JOIN LATERAL (
        SELECT FROM tenure.spent x
        WHERE x.group_name = p_group AND x.nonce = c.nonce AND x.used_at < v_limit
        FOR UPDATE SKIP LOCKED
    ) AS locked;
    UPDATE tenure.spent SET used_at = clock_timestamp()
    WHERE group_name = p_group AND nonce = ANY (v_carried);
    DELETE FROM tenure.spent
    WHERE group_name = p_group AND nonce = ANY (v_old) AND used_at < v_limit;
END $$;

-- Opens a session. Returns open, taken, spent or evicted.
CREATE OR REPLACE FUNCTION tenure.session_open(
    p_group text, p_instance text, p_nonce uuid, p_ttl_ms bigint, p_note bytea, p_mark bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
    v_ttl constant interval := p_ttl_ms * interval '1 millisecond';
    v_row tenure.session%ROWTYPE;
    v_live boolean;
    v_is_there boolean;
    v_spent boolean;
BEGIN
    PERFORM tenure.check_isolation();
    LOOP
        SELECT * INTO v_row FROM tenure.session
        WHERE group_name = p_group AND instance = p_instance FOR UPDATE;
        v_is_there := FOUND;
        v_spent := EXISTS (
            SELECT FROM tenure.spent WHERE group_name = p_group AND nonce = p_nonce
        );
        IF NOT v_is_there AND v_spent THEN
            -- The same call may have succeeded between the two reads: read again.
            CONTINUE WHEN EXISTS (
                SELECT FROM tenure.session WHERE group_name = p_group AND instance = p_instance
            );
            RETURN 'spent';
        ELSIF v_is_there THEN
            v_live := NOT v_row.ended AND v_row.expires_at > clock_timestamp();
            IF v_row.evicted THEN
                RETURN 'evicted';
            ELSIF v_live AND v_row.nonce <> p_nonce THEN
                RETURN 'taken';
            ELSIF NOT v_live AND (v_spent OR v_row.nonce = p_nonce) THEN
                RETURN 'spent';
            END IF;
            UPDATE tenure.session SET
                nonce = p_nonce, note = p_note, ttl = v_ttl, ended = false,
                expires_at = clock_timestamp() + v_ttl,
                left_count = CASE WHEN v_live THEN left_count ELSE p_mark END
            WHERE group_name = p_group AND instance = p_instance;
            -- The same nonce means a repeated call, which was recorded before.
            EXIT WHEN NOT v_live;
            RETURN 'open';
        END IF;
        INSERT INTO tenure.session (
            group_name, instance, nonce, note, ttl, expires_at, left_count
        ) VALUES (
            p_group, p_instance, p_nonce, p_note, v_ttl, clock_timestamp() + v_ttl, p_mark
        ) ON CONFLICT (group_name, instance) DO NOTHING;
        -- Otherwise another call was faster: read its row.
        EXIT WHEN FOUND;
    END LOOP;
    -- Delete sessions that ended more than a day ago, except evictions; skip locked ones. A nonce
    -- is spent from its first use until a week after its session is removed: what has ended never
    -- comes back (R9).
    WITH gone AS (
        DELETE FROM tenure.session WHERE (group_name, instance) IN (
            SELECT x.group_name, x.instance FROM tenure.session x
            WHERE x.group_name = p_group AND x.instance <> p_instance AND NOT x.evicted
                AND x.expires_at < clock_timestamp() - interval '1 day'
            FOR UPDATE SKIP LOCKED
        ) RETURNING nonce
    )
    INSERT INTO tenure.spent (group_name, nonce)
    SELECT p_group, u.nonce FROM (
        SELECT p_nonce AS nonce UNION SELECT v_row.nonce WHERE v_is_there
        UNION SELECT nonce FROM gone
    ) AS u ORDER BY u.nonce
    ON CONFLICT (group_name, nonce) DO UPDATE SET used_at = clock_timestamp();
    PERFORM tenure.spent_sweep(p_group);
    INSERT INTO tenure.audit (group_name, kind, instance, reason)
    VALUES (p_group, 'joined', p_instance, 'open');
    PERFORM pg_notify('tenure.changes', p_group);
    RETURN 'open';
END $$;
