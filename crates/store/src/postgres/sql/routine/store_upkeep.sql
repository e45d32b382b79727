-- Takes the store over: ends every session, and with it every hold, and raises the floor of all
-- groups above every epoch that can be found. Answers how many live sessions ended, how many duties
-- there are, and the floor.
--
-- The tables are locked, not rows: claims, keep-alives, commits and effects that are under way come
-- to their end first, and what comes later finds the sessions ended and the floor raised.
CREATE OR REPLACE FUNCTION tenure.store_adopt(
    p_incarnation text, p_floor bigint
) RETURNS TABLE (sessions bigint, duties bigint, floor bigint)
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
#variable_conflict use_column
BEGIN
    PERFORM tenure.check_isolation();
    LOCK TABLE tenure.hold, tenure.session IN EXCLUSIVE MODE;
    SELECT count(*) INTO sessions FROM tenure.session
    WHERE NOT ended AND expires_at > clock_timestamp();
    UPDATE tenure.session SET ended = true WHERE NOT ended;
    -- An effect whose snapshot is older than this finds the row changed.
    UPDATE tenure.hold SET held = held WHERE held;
    SELECT count(*) INTO duties FROM (
        SELECT group_name, duty FROM tenure.hold WHERE epoch > 0
        UNION SELECT group_name, duty FROM tenure.checkpoint
    ) AS known;
    UPDATE tenure.store s SET
        incarnation = p_incarnation,
        adopted_at = clock_timestamp(),
        floor = greatest(s.floor, p_floor,
            (SELECT max(epoch) FROM tenure.hold),
            (SELECT max(epoch) FROM tenure.checkpoint),
            (SELECT max(epoch) FROM tenure.history),
            (SELECT max(epoch) FROM tenure.group_floor))
    RETURNING s.floor INTO floor;
    PERFORM pg_notify('tenure.changes', g.group_name)
    FROM (SELECT DISTINCT group_name FROM tenure.session) AS g;
    RETURN NEXT;
END $$;

-- Changes how much of the past is kept.
--
-- A slot means nothing without the number of slots, so the ring is laid anew. The lock waits for
-- commits that have read the number of before, and later ones read the new one: a statement takes
-- its locks before it looks.
CREATE OR REPLACE FUNCTION tenure.store_retain(
    p_slots integer, p_audit bigint
) RETURNS void LANGUAGE plpgsql
SET lock_timeout = '3s' SET enable_nestloop = off SET enable_seqscan = on AS $$
BEGIN
    PERFORM tenure.check_isolation();
    LOCK TABLE tenure.history IN SHARE ROW EXCLUSIVE MODE;
    IF p_slots <> (SELECT history_slots FROM tenure.store) THEN
        DELETE FROM tenure.history WHERE (group_name, duty, slot) IN (
            SELECT x.group_name, x.duty, x.slot FROM (
                SELECT h.group_name, h.duty, h.slot, h.version,
                    max(h.version) OVER (PARTITION BY h.group_name, h.duty) AS newest
                FROM tenure.history h
            ) AS x WHERE x.version <= x.newest - p_slots
        );
        -- Out of every slot first, so that no entry meets another on the way to its new one.
        UPDATE tenure.history SET slot = -1 - slot;
        UPDATE tenure.history SET slot = version % p_slots;
    END IF;
    UPDATE tenure.store SET history_slots = p_slots, audit_kept = p_audit;
END $$;
