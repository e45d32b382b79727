
-- Deletes a connector and its data. Returns why the token has ended, and whether the connector
-- existed. Blocks counting meanwhile; its heartbeats wait.
CREATE OR REPLACE FUNCTION tenure.connector_delete(
    p_type text, p_endpoint text, p_path text, p_by text, p_reason text, p_token text
) RETURNS TABLE (ended text, done boolean)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_counted bigint;
BEGIN
    PERFORM tenure.ingest_isolation();
    SELECT counted_id INTO STRICT v_counted
    FROM tenure.connector_stats_progress WHERE only_row FOR UPDATE;
    ended := tenure.token_ended(p_token, true);
    IF ended IS NULL THEN
        DELETE FROM tenure.connector_registry
        WHERE connector_type = p_type AND endpoint_identity = p_endpoint;
        done := FOUND;
    END IF;
    RETURN NEXT;
    IF done IS NOT TRUE THEN
        RETURN;
    END IF;
    DELETE FROM tenure.connector_instances
    WHERE connector_type = p_type AND endpoint_identity = p_endpoint;
    DELETE FROM tenure.connector_heartbeat_log
    WHERE connector_type = p_type AND endpoint_identity = p_endpoint;
    DELETE FROM tenure.connector_stats_hourly
    WHERE connector_type = p_type AND endpoint_identity = p_endpoint;
    DELETE FROM tenure.connector_stats_daily
    WHERE connector_type = p_type AND endpoint_identity = p_endpoint;
    DELETE FROM tenure.connector_stats_window
    WHERE connector_type = p_type AND endpoint_identity = p_endpoint;
    DELETE FROM tenure.connector_fanout_daily
    WHERE connector_type = p_type AND endpoint_identity = p_endpoint;
    -- The outcomes of its messages are kept, but not counted for it any more.
    UPDATE tenure.inbox_outcome SET arrival = NULL
    WHERE arrival > v_counted AND connector_type = p_type AND endpoint_identity = p_endpoint;
    INSERT INTO tenure.token_audit_log
        (token_id, action_type, operator_identity, reason, performed_at, metadata)
    VALUES (p_path, 'connector_delete', p_by, p_reason, clock_timestamp(),
        json_build_object('connector_type', p_type, 'endpoint_identity', p_endpoint)::text);
END $$;
