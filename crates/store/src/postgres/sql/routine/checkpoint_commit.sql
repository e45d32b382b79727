-- Stores checkpoints under holds of one session. One row per commit, `item` counting from 1:
-- saved (number = version), fenced (number = newest epoch) or conflict (number = stored version).
CREATE OR REPLACE FUNCTION tenure.checkpoint_commit(
    p_group text, p_instance text, p_nonce uuid, p_duties text[], p_epochs bigint[],
    p_expected bigint[], p_documents bytea[], p_slots integer
) RETURNS TABLE (item bigint, outcome text, number bigint)
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
#variable_conflict use_column
DECLARE
    v_live boolean;
    v_saved text[];
BEGIN
    -- Key share: keep-alives and other commits pass, a takeover does not (R12).
    PERFORM 1 FROM (
        SELECT FROM unnest(p_duties) AS w(duty)
        JOIN tenure.hold h ON h.group_name = p_group AND h.duty = w.duty
        ORDER BY h.duty FOR KEY SHARE OF h
    ) AS locked;
    v_live := EXISTS (
        SELECT FROM tenure.session
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
            AND NOT ended AND expires_at > clock_timestamp()
    );
    WITH allowed AS (
        SELECT w.duty, w.epoch, w.expected, w.document
        FROM unnest(p_duties, p_epochs, p_expected, p_documents)
            AS w(duty, epoch, expected, document)
        JOIN tenure.hold h ON h.group_name = p_group AND h.duty = w.duty
            AND h.epoch = w.epoch AND h.instance = p_instance AND h.nonce = p_nonce AND h.held
        WHERE v_live AND (w.expected = 0 OR EXISTS (
            SELECT FROM tenure.checkpoint c WHERE c.group_name = p_group AND c.duty = w.duty
        ))
    ), saved AS (
        INSERT INTO tenure.checkpoint AS c
            (group_name, duty, version, epoch, instance, document, written_at)
        SELECT p_group, duty, expected + 1, epoch, p_instance, document, clock_timestamp()
        FROM allowed ORDER BY duty COLLATE "C"
        ON CONFLICT (group_name, duty) DO UPDATE SET
            version = excluded.version, epoch = excluded.epoch, instance = excluded.instance,
            document = excluded.document, written_at = excluded.written_at
        WHERE c.version = excluded.version - 1 AND c.epoch <= excluded.epoch
        RETURNING c.duty, c.version, c.epoch, c.document, c.written_at
    ), kept AS (
        INSERT INTO tenure.history
            (group_name, duty, slot, version, epoch, instance, document, written_at)
        SELECT p_group, duty, version % p_slots, version, epoch, p_instance, document, written_at
        FROM saved
        ON CONFLICT (group_name, duty, slot) DO UPDATE SET
            version = excluded.version, epoch = excluded.epoch, instance = excluded.instance,
            document = excluded.document, written_at = excluded.written_at
    )
    SELECT array_agg(duty) INTO v_saved FROM saved;
    IF cardinality(v_saved) = cardinality(p_duties) THEN
        RETURN QUERY SELECT w.item, 'saved', w.expected + 1
        FROM unnest(p_expected) WITH ORDINALITY AS w(expected, item);
        RETURN;
    END IF;
    RETURN QUERY SELECT w.item, o.outcome,
        CASE o.outcome WHEN 'saved' THEN w.expected + 1
            WHEN 'conflict' THEN coalesce(c.version, 0)
            ELSE coalesce(greatest(h.epoch, c.epoch), 0) END
    FROM unnest(p_duties, p_epochs, p_expected) WITH ORDINALITY AS w(duty, epoch, expected, item)
    LEFT JOIN unnest(v_saved) AS f(duty) ON f.duty = w.duty
    LEFT JOIN tenure.hold h ON h.group_name = p_group AND h.duty = w.duty
    LEFT JOIN tenure.checkpoint c ON c.group_name = p_group AND c.duty = w.duty
    CROSS JOIN LATERAL (SELECT CASE
        WHEN f.duty IS NOT NULL THEN 'saved'
        WHEN v_live AND h.held AND h.epoch = w.epoch AND h.instance = p_instance
            AND h.nonce = p_nonce AND coalesce(c.epoch, 0) <= w.epoch THEN 'conflict'
        ELSE 'fenced' END AS outcome) AS o
    ORDER BY w.item;
END $$;
