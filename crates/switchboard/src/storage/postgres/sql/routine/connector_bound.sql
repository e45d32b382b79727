
-- Moves the bound of what can be counted past all numbers drawn so far. Every transaction with a
-- smaller number has ended, and later ones draw larger numbers, so nothing below the bound changes
-- any more. The lock timeout is short because heartbeats and reports wait behind this lock.
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
