
-- Moves the bound of what can be counted to now. Whoever received something before it has
-- committed, and whoever comes later receives it after it: what is before the bound stands still.
-- Nobody waits for long: those who receive would wait behind.
CREATE OR REPLACE FUNCTION tenure.connector_bound(p_epoch bigint, p_at timestamptz) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '1s' SET enable_seqscan = off AS $$
BEGIN
    PERFORM FROM tenure.connector_stats_progress WHERE only_row AND epoch <= p_epoch FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('tenure.connector_stats_progress', 0));
    UPDATE tenure.connector_stats_progress
    SET ceiling = greatest(ceiling, coalesce(p_at, clock_timestamp())) WHERE only_row;
END $$;
