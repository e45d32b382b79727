-- Stores checkpoints under holds of one session. One row per commit, `item` counting from 1: saved
-- (number = version), fenced (number = newest epoch) or conflict (number = stored version).
-- `p_slots`, from programs older than migration 0002, is ignored: the store's number applies.
CREATE OR REPLACE FUNCTION tenure.checkpoint_commit(
    p_group text, p_instance text, p_nonce uuid, p_duties text[], p_epochs bigint[],
    p_expected bigint[], p_documents bytea[], p_slots integer DEFAULT NULL
) RETURNS TABLE (item bigint, outcome text, number bigint)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_live boolean;
    v_saved bigint := 0;
BEGIN
    PERFORM tenure.check_isolation();
    -- FOR KEY SHARE lets keep-alives and other commits pass, but no takeover (R12).
    PERFORM count(*) FROM (
        SELECT u.duty FROM unnest(p_duties) AS u(duty) ORDER BY u.duty COLLATE "C" OFFSET 0
    ) AS w CROSS JOIN LATERAL (
        SELECT FROM tenure.hold x WHERE x.group_name = p_group AND x.duty = w.duty FOR KEY SHARE
    ) AS locked;
    v_live := EXISTS (
        SELECT FROM tenure.session
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
            AND NOT ended AND expires_at > clock_timestamp()
    );
    WITH saved AS (
        INSERT INTO tenure.checkpoint AS c
            (group_name, duty, version, epoch, instance, document, written_at)
        SELECT p_group, w.duty, w.expected + 1, w.epoch, p_instance, w.document, clock_timestamp()
        FROM unnest(p_duties, p_epochs, p_expected, p_documents)
            AS w(duty, epoch, expected, document)
        CROSS JOIN LATERAL (
            SELECT FROM tenure.hold x
            WHERE x.group_name = p_group AND x.duty = w.duty AND x.epoch = w.epoch
                AND x.instance = p_instance AND x.nonce = p_nonce AND x.held OFFSET 0
        ) AS h
        LEFT JOIN LATERAL (
            SELECT true AS is_there FROM tenure.checkpoint x
            WHERE x.group_name = p_group AND x.duty = w.duty AND w.expected > 0 OFFSET 0
        ) AS e ON true
        -- Without a row only the first version can be written.
        WHERE v_live AND (w.expected = 0 OR e.is_there)
        ORDER BY w.duty COLLATE "C"
        ON CONFLICT (group_name, duty) DO UPDATE SET
            version = excluded.version, epoch = excluded.epoch, instance = excluded.instance,
            document = excluded.document, written_at = excluded.written_at
        WHERE c.version = excluded.version - 1 AND c.epoch <= excluded.epoch
        RETURNING c.duty, c.version, c.epoch, c.document, c.written_at
    ), kept AS (
        INSERT INTO tenure.history
            (group_name, duty, slot, version, epoch, instance, document, written_at)
        SELECT p_group, duty, version % (SELECT history_slots FROM tenure.store WHERE only_row),
            version, epoch, p_instance, document, written_at
        FROM saved
        ON CONFLICT (group_name, duty, slot) DO UPDATE SET
            version = excluded.version, epoch = excluded.epoch, instance = excluded.instance,
            document = excluded.document, written_at = excluded.written_at
    )
    SELECT count(*) INTO v_saved FROM saved;
    IF v_saved = cardinality(p_duties) THEN
        RETURN QUERY SELECT w.item, 'saved', w.expected + 1
        FROM unnest(p_expected) WITH ORDINALITY AS w(expected, item);
        RETURN;
    END IF;
    RETURN QUERY SELECT w.item, o.outcome,
        CASE o.outcome WHEN 'saved' THEN w.expected + 1
            WHEN 'conflict' THEN coalesce(c.version, 0)
            ELSE coalesce(greatest(h.epoch, c.epoch), 0) END
    FROM unnest(p_duties, p_epochs, p_expected) WITH ORDINALITY AS w(duty, epoch, expected, item)
    LEFT JOIN LATERAL (
        SELECT x.epoch, x.held AND x.epoch = w.epoch AND x.instance = p_instance
            AND x.nonce = p_nonce AS is_ours
        FROM tenure.hold x WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
    ) AS h ON true
    LEFT JOIN LATERAL (
        SELECT x.version, x.epoch, x.xmin = pg_current_xact_id()::xid AS is_new
        FROM tenure.checkpoint x WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
    ) AS c ON true
    CROSS JOIN LATERAL (SELECT CASE
        WHEN c.is_new THEN 'saved'
        WHEN v_live AND h.is_ours AND coalesce(c.epoch, 0) <= w.epoch THEN 'conflict'
        ELSE 'fenced' END AS outcome) AS o
    ORDER BY w.item;
END $$;
