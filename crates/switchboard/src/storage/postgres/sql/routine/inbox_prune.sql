
-- Takes away the oldest messages, in the order of their positions, and says how many were looked
-- at. The row that ingest waits for is locked last, for no longer than the commit takes.
CREATE OR REPLACE FUNCTION tenure.inbox_prune(p_keep bigint) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
DECLARE
    v_cutoff timestamptz;
    v_trimmed bigint;
    v_upto bigint;
    v_gone bigint;
BEGIN
    SELECT trimmed INTO STRICT v_trimmed FROM tenure.inbox_position WHERE only_row;
    SELECT reached - p_keep * interval '1 microsecond' INTO STRICT v_cutoff
    FROM tenure.switchboard_clock WHERE only_row;
    -- Up to the last one that is old enough: what lies before it came earlier, also under a clock
    -- that was ahead.
    SELECT max(s.position) FILTER (WHERE s.received_at < v_cutoff) INTO v_upto FROM (
        SELECT x.position, x.received_at FROM tenure.message_inbox x
        WHERE x.position > v_trimmed ORDER BY x.position LIMIT 1000
    ) AS s;
    IF v_upto IS NULL OR v_upto <= v_trimmed THEN
        RETURN 0;
    END IF;
    DELETE FROM tenure.message_inbox WHERE position > v_trimmed AND position <= v_upto;
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    UPDATE tenure.inbox_position SET trimmed = greatest(trimmed, v_upto) WHERE only_row;
    RETURN v_gone;
END $$;
