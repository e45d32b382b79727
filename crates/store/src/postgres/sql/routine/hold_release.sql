-- Gives holds back. One row per hold, `item` counting from 1: freed, already or not_yours.
CREATE OR REPLACE FUNCTION tenure.hold_release(
    p_group text, p_instance text, p_nonce uuid,
    p_duties text[], p_epochs bigint[], p_reason text
) RETURNS TABLE (item bigint, outcome text)
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
#variable_conflict use_column
DECLARE
    v_live boolean;
    v_freed text[];
BEGIN
    -- Waits for effects that are running under these holds.
    PERFORM 1 FROM (
        SELECT FROM unnest(p_duties) AS w(duty)
        JOIN tenure.hold h ON h.group_name = p_group AND h.duty = w.duty
        ORDER BY h.duty FOR UPDATE OF h
    ) AS locked;
    v_live := EXISTS (
        SELECT FROM tenure.session
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
            AND NOT ended AND expires_at > clock_timestamp()
    );
    WITH freed AS (
        UPDATE tenure.hold h SET held = false
        FROM unnest(p_duties, p_epochs) AS w(duty, epoch)
        WHERE v_live AND h.group_name = p_group AND h.duty = w.duty AND h.epoch = w.epoch
            AND h.instance = p_instance AND h.nonce = p_nonce AND h.held
        RETURNING h.duty, h.epoch
    ), recorded AS (
        INSERT INTO tenure.audit (group_name, kind, instance, duty, epoch, reason)
        SELECT p_group, 'released', p_instance, duty, epoch, p_reason FROM freed ORDER BY duty
    )
    SELECT array_agg(duty) INTO v_freed FROM freed;
    IF v_freed IS NOT NULL THEN
        UPDATE tenure.session SET left_count = left_count + cardinality(v_freed)
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce;
        PERFORM pg_notify('tenure.changes', p_group);
    END IF;
    RETURN QUERY SELECT w.item,
        CASE WHEN f.duty IS NOT NULL THEN 'freed'
            WHEN h.epoch = w.epoch AND h.instance = p_instance AND h.nonce = p_nonce
                THEN 'already'
            ELSE 'not_yours' END
    FROM unnest(p_duties, p_epochs) WITH ORDINALITY AS w(duty, epoch, item)
    LEFT JOIN unnest(v_freed) AS f(duty) ON f.duty = w.duty
    LEFT JOIN tenure.hold h ON h.group_name = p_group AND h.duty = w.duty
    ORDER BY w.item;
END $$;
