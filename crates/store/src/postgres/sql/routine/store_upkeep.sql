-- Adopts the store: ends every session, and with it every hold, and raises the floor of all groups
-- to at least every epoch that can be found. Returns the number of live sessions ended, the number
-- of duties, and the floor.
--
-- The tables are locked, not rows: running claims, keep-alives, commits and effects finish first,
-- and later ones find the sessions ended and the floor raised.
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
    -- A no-op that lets an effect with an older snapshot find the row changed.
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

-- Sets the retention of histories and the audit trail.
--
-- A slot depends on the number of slots, so the ring is rebuilt. The lock waits for commits that
-- read the old number, and later ones read the new one: a statement locks before it reads.
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
        -- First to temporary slots, so that no entry collides when it gets its new one.
        UPDATE tenure.history SET slot = -1 - slot;
        UPDATE tenure.history SET slot = version % p_slots;
    END IF;
    UPDATE tenure.store SET history_slots = p_slots, audit_kept = p_audit;
END $$;
