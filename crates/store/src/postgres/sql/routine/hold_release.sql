-- Releases holds. One row per hold, `item` counting from 1: freed, already or not_yours.
CREATE OR REPLACE FUNCTION tenure.hold_release(
    p_group text, p_instance text, p_nonce uuid,
    p_duties text[], p_epochs bigint[], p_reason text
) RETURNS TABLE (item bigint, outcome text)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_freed bigint := 0;
BEGIN
    PERFORM tenure.check_isolation();
    -- Waits for effects that are running under these holds.
    PERFORM count(*) FROM (
        SELECT u.duty FROM unnest(p_duties) AS u(duty) ORDER BY u.duty COLLATE "C" OFFSET 0
    ) AS w CROSS JOIN LATERAL (
        SELECT FROM tenure.hold x WHERE x.group_name = p_group AND x.duty = w.duty FOR UPDATE
    ) AS locked;
    IF EXISTS (
        SELECT FROM tenure.session
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
            AND NOT ended AND expires_at > clock_timestamp()
    ) THEN
        WITH ours AS MATERIALIZED (
            SELECT h.duty, h.epoch FROM unnest(p_duties, p_epochs) AS w(duty, epoch)
            CROSS JOIN LATERAL (
                SELECT x.duty, x.epoch FROM tenure.hold x
                WHERE x.group_name = p_group AND x.duty = w.duty AND x.epoch = w.epoch
                    AND x.instance = p_instance AND x.nonce = p_nonce AND x.held OFFSET 0
            ) AS h
        ), freed AS (
            INSERT INTO tenure.hold (group_name, duty, epoch, instance, nonce, held)
            SELECT p_group, duty, epoch, p_instance, p_nonce, false FROM ours
            ORDER BY duty COLLATE "C"
            ON CONFLICT (group_name, duty) DO UPDATE SET held = false
        ), recorded AS (
            INSERT INTO tenure.audit (group_name, kind, instance, duty, epoch, reason)
            SELECT p_group, 'released', p_instance, duty, epoch, p_reason FROM ours ORDER BY duty
        )
        SELECT count(*) INTO v_freed FROM ours;
    END IF;
    IF v_freed > 0 THEN
        UPDATE tenure.session SET left_count = left_count + v_freed
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce;
        PERFORM pg_notify('tenure.changes', p_group);
    END IF;
    RETURN QUERY SELECT w.item,
        CASE WHEN h.is_ours AND h.is_new THEN 'freed'
            WHEN h.is_ours THEN 'already'
            ELSE 'not_yours' END
    FROM unnest(p_duties, p_epochs) WITH ORDINALITY AS w(duty, epoch, item)
    LEFT JOIN LATERAL (
        SELECT x.epoch = w.epoch AND x.instance = p_instance AND x.nonce = p_nonce AS is_ours,
            x.xmin = pg_current_xact_id()::xid AS is_new
        FROM tenure.hold x WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
    ) AS h ON true
    ORDER BY w.item;
END $$;
