-- Frees all holds of a session in key order, after waiting for effects that are running under them,
-- and records why. Returns their number.
CREATE OR REPLACE FUNCTION tenure.hold_free_all(
    p_group text, p_instance text, p_nonce uuid, p_kind text, p_reason text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_freed bigint;
BEGIN
    PERFORM 1 FROM (
        SELECT FROM tenure.hold
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce AND held
        ORDER BY duty FOR UPDATE
    ) AS locked;
    WITH freed AS (
        UPDATE tenure.hold SET held = false
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce AND held
        RETURNING duty, epoch
    ), recorded AS (
        INSERT INTO tenure.audit (group_name, kind, instance, duty, epoch, reason)
        SELECT p_group, p_kind, p_instance, duty, epoch, p_reason FROM freed ORDER BY duty
    )
    SELECT count(*) INTO v_freed FROM freed;
    RETURN v_freed;
END $$;

-- Closes a session. Returns closed or ended.
CREATE OR REPLACE FUNCTION tenure.session_close(
    p_group text, p_instance text, p_nonce uuid, p_reason text
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
BEGIN
    PERFORM tenure.check_isolation();
    -- One transaction: nobody sees the session closed before its holds are free. Holds are locked
    -- before sessions, as everywhere.
    PERFORM 1 FROM (
        SELECT FROM tenure.hold
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce AND held
        ORDER BY duty FOR UPDATE
    ) AS locked;
    -- Waits for claims of this session, which lock it FOR KEY SHARE: their grants are freed, too.
    PERFORM FROM tenure.session
    WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce FOR UPDATE;
    UPDATE tenure.session SET ended = true
    WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
        AND NOT ended AND expires_at > clock_timestamp();
    IF NOT FOUND THEN
        RETURN 'ended';
    END IF;
    PERFORM tenure.hold_free_all(p_group, p_instance, p_nonce, 'released', p_reason);
    INSERT INTO tenure.audit (group_name, kind, instance, reason)
    VALUES (p_group, 'left', p_instance, p_reason);
    PERFORM pg_notify('tenure.changes', p_group);
    RETURN 'closed';
END $$;

-- Evicts an instance; `p_now` also ends its holds. Returns how many holds ended, or null if it was
-- not a member.
CREATE OR REPLACE FUNCTION tenure.session_evict(
    p_group text, p_instance text, p_now boolean, p_reason text
) RETURNS bigint LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
    v_row tenure.session%ROWTYPE;
    v_freed bigint := 0;
BEGIN
    PERFORM tenure.check_isolation();
    -- Before the insertion: an adoption locks this table first, and then that of the sessions.
    LOCK TABLE tenure.hold IN ROW SHARE MODE;
    INSERT INTO tenure.session (
        group_name, instance, nonce, note, ttl, expires_at, ended, left_count
    ) VALUES (
        p_group, p_instance, '00000000-0000-4000-8000-000000000000', '', interval '0',
        clock_timestamp(), true, 0
    ) ON CONFLICT (group_name, instance) DO NOTHING;
    SELECT * INTO v_row FROM tenure.session
    WHERE group_name = p_group AND instance = p_instance;
    IF p_now AND NOT v_row.ended AND v_row.expires_at > clock_timestamp() THEN
        -- Waits for effects that are running under these holds: none is left when this returns.
        v_freed := tenure.hold_free_all(p_group, p_instance, v_row.nonce, 'evicted', p_reason);
    END IF;
    SELECT * INTO v_row FROM tenure.session
    WHERE group_name = p_group AND instance = p_instance FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session was swept meanwhile' USING ERRCODE = '40001';
    END IF;
    IF p_now AND NOT v_row.ended AND v_row.expires_at > clock_timestamp() THEN
        -- Holds granted between the two reads; no more can be granted now.
        v_freed := v_freed
            + tenure.hold_free_all(p_group, p_instance, v_row.nonce, 'evicted', p_reason);
    END IF;
    UPDATE tenure.session SET evicted = true, ended = ended OR p_now
    WHERE group_name = p_group AND instance = p_instance;
    IF NOT v_row.evicted THEN
        INSERT INTO tenure.audit (group_name, kind, instance, reason)
        VALUES (p_group, 'evicted', p_instance, p_reason);
    END IF;
    PERFORM pg_notify('tenure.changes', p_group);
    IF v_row.ended OR v_row.expires_at <= clock_timestamp() THEN
        RETURN NULL;
    END IF;
    RETURN v_freed;
END $$;
