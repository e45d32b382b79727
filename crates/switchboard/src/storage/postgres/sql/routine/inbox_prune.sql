
-- Deletes the oldest messages in the order of their positions, and returns how many. The row that
-- ingest waits for is locked last, for no longer than the commit takes.
CREATE OR REPLACE FUNCTION tenure.inbox_prune(p_keep bigint) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
DECLARE
    v_reached timestamptz;
    v_cutoff timestamptz;
    v_trimmed bigint;
    v_upto bigint;
    v_id uuid;
    v_gone bigint;
BEGIN
    PERFORM tenure.ingest_isolation();
    SELECT trimmed INTO STRICT v_trimmed FROM tenure.inbox_position WHERE only_row;
    SELECT reached, reached - p_keep * interval '1 microsecond' INTO STRICT v_reached, v_cutoff
    FROM tenure.switchboard_clock WHERE only_row;
    -- Up to the last expired message before the first that is kept. Times ahead of the clock of
    -- retention come from a clock that was ahead: such messages go with the next ones.
    SELECT s.position, s.request_id INTO v_upto, v_id FROM (
        SELECT x.position, x.request_id, x.received_at,
            bool_or(x.received_at BETWEEN v_cutoff AND v_reached) OVER (ORDER BY x.position) AS kept
        FROM (
            SELECT m.position, m.request_id, m.received_at FROM tenure.message_inbox m
            WHERE m.position > v_trimmed ORDER BY m.position LIMIT 1000
        ) AS x
    ) AS s
    WHERE s.received_at < v_cutoff AND NOT s.kept ORDER BY s.position DESC LIMIT 1;
    IF v_upto IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM tenure.message_inbox WHERE position > v_trimmed AND position <= v_upto;
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    UPDATE tenure.inbox_position SET trimmed = v_upto, trimmed_id = v_id
    WHERE only_row AND trimmed < v_upto;
    RETURN v_gone;
END $$;
