
-- Moves the bound of what can be counted past everything that was numbered so far. Whoever drew a
-- number before it has committed, and whoever comes later draws a larger one: what is before the
-- bound stands still. Nobody waits for long: those who receive would wait behind.
CREATE OR REPLACE FUNCTION tenure.connector_bound(p_epoch bigint) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '1s' SET enable_seqscan = off AS $$
BEGIN
    PERFORM tenure.ingest_isolation();
    PERFORM FROM tenure.connector_stats_progress WHERE only_row AND epoch <= p_epoch FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('tenure.connector_stats_progress', 0));
    UPDATE tenure.connector_stats_progress
    SET bound_id = nextval('tenure.connector_heartbeat_log_id_seq') WHERE only_row;
END $$;
