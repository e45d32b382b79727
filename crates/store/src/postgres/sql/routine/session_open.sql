-- Opens a session. Answers open, taken, spent or evicted.
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
    -- Members that ended more than a day ago; evictions are remembered. What is in use can wait.
    DELETE FROM tenure.session WHERE (group_name, instance) IN (
        SELECT x.group_name, x.instance FROM tenure.session x
        WHERE x.group_name = p_group AND x.instance <> p_instance AND NOT x.evicted
            AND x.expires_at < clock_timestamp() - interval '1 day'
        FOR UPDATE SKIP LOCKED
    );
    DELETE FROM tenure.spent
    WHERE group_name = p_group AND used_at < clock_timestamp() - interval '7 days';
    LOOP
        SELECT * INTO v_row FROM tenure.session
        WHERE group_name = p_group AND instance = p_instance FOR UPDATE;
        v_is_there := FOUND;
        v_spent := EXISTS (
            SELECT FROM tenure.spent WHERE group_name = p_group AND nonce = p_nonce
        );
        IF NOT v_is_there AND v_spent THEN
            RETURN 'spent';
        ELSIF v_is_there THEN
            v_live := NOT v_row.ended AND v_row.expires_at > clock_timestamp();
            IF v_row.evicted THEN
                RETURN 'evicted';
            ELSIF v_live AND v_row.nonce <> p_nonce THEN
                RETURN 'taken';
            ELSIF NOT v_live AND v_spent THEN
                RETURN 'spent';
            END IF;
            UPDATE tenure.session SET
                nonce = p_nonce, note = p_note, ttl = v_ttl, ended = false,
                expires_at = clock_timestamp() + v_ttl,
                left_count = CASE WHEN v_live THEN left_count ELSE p_mark END
            WHERE group_name = p_group AND instance = p_instance;
            -- The same nonce again is the same opening: it was recorded before.
            EXIT WHEN NOT v_live;
            RETURN 'open';
        END IF;
        INSERT INTO tenure.session (
            group_name, instance, nonce, note, ttl, expires_at, left_count
        ) VALUES (
            p_group, p_instance, p_nonce, p_note, v_ttl, clock_timestamp() + v_ttl, p_mark
        ) ON CONFLICT (group_name, instance) DO NOTHING;
        -- Otherwise somebody was faster: look at what they made.
        EXIT WHEN FOUND;
    END LOOP;
    -- A nonce is spent from its first use on: what has ended never comes back (R9).
    INSERT INTO tenure.spent (group_name, nonce) VALUES (p_group, p_nonce) ON CONFLICT DO NOTHING;
    INSERT INTO tenure.audit (group_name, kind, instance, reason)
    VALUES (p_group, 'joined', p_instance, 'open');
    PERFORM pg_notify('tenure.changes', p_group);
    RETURN 'open';
END $$;
