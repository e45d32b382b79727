-- Ends transactions with effects under holds that expired more than three seconds ago; a claim
-- found `p_duties` locked. No timeout of the server catches a client that is stopped while it sends
-- or receives data, so it would block its successor for ever.
--
-- Nothing here waits. A session is stored before its holds, so a hold without a session row has
-- ended, and its instance may have opened another. A locked session is being kept alive, or checked
-- by another claim. The lock key contains the epoch, so it never matches the next holder.
CREATE OR REPLACE FUNCTION tenure.effect_end(p_group text, p_duties text[]) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_duties text[];
    v_keys bigint[];
    v_backend record;
BEGIN
    WITH blocked AS MATERIALIZED (
        SELECT h.duty, h.epoch, h.instance, h.nonce FROM unnest(p_duties) AS w(duty)
        CROSS JOIN LATERAL (
            SELECT x.duty, x.epoch, x.instance, x.nonce FROM tenure.hold x
            WHERE x.group_name = p_group AND x.duty = w.duty AND x.held OFFSET 0
        ) AS h
    ), over AS MATERIALIZED (
        SELECT s.instance, s.nonce FROM (SELECT DISTINCT instance, nonce FROM blocked) AS o
        CROSS JOIN LATERAL (
            SELECT x.instance, x.nonce FROM tenure.session x
            WHERE x.group_name = p_group AND x.instance = o.instance AND x.nonce = o.nonce
                AND x.expires_at <= clock_timestamp() - interval '3 seconds'
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS s
    ), replaced AS MATERIALIZED (
        SELECT DISTINCT b.instance, b.nonce FROM blocked b
        WHERE NOT EXISTS (
            SELECT FROM tenure.session x
            WHERE x.group_name = p_group AND x.instance = b.instance AND x.nonce = b.nonce)
    )
    SELECT array_agg(duty), array_agg(tenure.effect_key(p_group, duty, epoch))
    INTO v_duties, v_keys
    FROM blocked JOIN (TABLE over UNION ALL TABLE replaced) AS ended USING (instance, nonce);
    IF v_keys IS NULL THEN
        RETURN;
    END IF;
    FOR v_backend IN
        SELECT l.pid, format('backend %s of role %s (%s)%s', l.pid, a.usename, a.application_name,
                ', in a transaction since ' || date_trunc('second', a.xact_start)) AS name,
            p_group || '/' || v_duties[array_position(v_keys, l.key)] AS duty
        FROM (
            SELECT x.pid, x.classid::bigint << 32 | x.objid::bigint AS key FROM pg_locks x
            WHERE x.locktype = 'advisory' AND x.objsubid = 1 AND x.pid <> pg_backend_pid()
                AND x.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        ) AS l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.key = ANY (v_keys)
    LOOP
        -- For the server's log and the claimer; the command `tenure` knows them by their prefix.
        BEGIN
            PERFORM pg_terminate_backend(v_backend.pid);
            RAISE WARNING 'tenure: ended %: its hold of % has expired',
                v_backend.name, v_backend.duty;
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE WARNING 'tenure: % blocks %, its hold has expired: '
                'end it, or grant pg_signal_backend to %',
                v_backend.name, v_backend.duty, current_user;
        END;
    END LOOP;
END $$;
