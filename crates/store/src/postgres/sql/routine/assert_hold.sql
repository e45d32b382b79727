-- Undoes the percent escapes of one part of `group/duty`.
CREATE OR REPLACE FUNCTION tenure.unescape(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT convert_from(string_agg(
        CASE WHEN part[1] LIKE '\%__' THEN decode(substr(part[1], 2), 'hex')
            ELSE convert_to(part[1], 'UTF8') END,
        ''::bytea ORDER BY position), 'UTF8')
    FROM regexp_matches(p_text, '%[0-9A-Fa-f]{2}|[^%]+', 'g')
        WITH ORDINALITY AS match(part, position)
$$;

-- Key of the advisory lock that identifies a transaction with effects under a hold: a row lock does
-- not show its owner.
CREATE OR REPLACE FUNCTION tenure.effect_key(
    p_group text, p_duty text, p_epoch bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT hashtextextended(p_duty,
        hashtextextended(p_group, hashtextextended('tenure.hold', p_epoch)))
$$;

-- For effects in your own transaction: raises TN001 unless `p_instance` holds `p_duty`, written
-- `group/duty`, under `p_epoch`. Until the transaction ends nobody else can be granted the duty
-- (R12), so it must end: the server closes the connection of a client that is idle in it, or
-- accepts none of a result, for longer than the hold is valid.
--
-- The hold is locked FOR SHARE: with a snapshot from before a change of the row, a weaker lock
-- would be granted on the old version, unless the row was locked FOR UPDATE for that change.
--
-- `tenure.fenced` contains this transaction's id and the duties and groups that it has asserted. It
-- is rolled back together with the lock, so guarded tables can rely on it.
CREATE OR REPLACE FUNCTION tenure.assert_hold(
    p_duty text, p_epoch bigint, p_instance text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_group constant text := tenure.unescape(split_part(p_duty, '/', 1));
    v_duty constant text := tenure.unescape(substr(p_duty, strpos(p_duty, '/') + 1));
    v_fenced text[] := nullif(current_setting('tenure.fenced', true), '');
    v_xact text;
    v_hold tenure.hold%ROWTYPE;
    v_left_ms bigint;
BEGIN
    SELECT * INTO v_hold FROM tenure.hold
    WHERE group_name = v_group AND duty = v_duty FOR SHARE;
    SELECT extract(epoch FROM expires_at - clock_timestamp()) * 900 INTO v_left_ms
    FROM tenure.session
    WHERE group_name = v_group AND instance = p_instance AND nonce = v_hold.nonce AND NOT ended
        AND v_hold.held AND v_hold.epoch = p_epoch AND v_hold.instance = p_instance;
    IF v_left_ms IS NULL OR v_left_ms < 1 THEN
        RAISE EXCEPTION '% is not held by % under epoch %', p_duty, p_instance, p_epoch
            USING ERRCODE = 'TN001', HINT = 'Stop this work: the duty belongs to somebody else.';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(tenure.effect_key(v_group, v_duty, p_epoch));
    PERFORM set_config(name, v_left_ms::text, true) FROM (
        SELECT name, setting FROM pg_settings
        WHERE name IN ('idle_in_transaction_session_timeout', 'tcp_user_timeout') OFFSET 0
    ) AS s WHERE setting::bigint = 0 OR setting::bigint > v_left_ms;
    v_xact := pg_current_xact_id();
    IF v_fenced[1] IS DISTINCT FROM v_xact THEN
        v_fenced := ARRAY[v_xact];
    END IF;
    IF p_duty <> ALL (v_fenced) THEN
        v_fenced := v_fenced || p_duty || split_part(p_duty, '/', 1);
        PERFORM set_config('tenure.fenced', v_fenced::text, true);
    END IF;
END $$;
