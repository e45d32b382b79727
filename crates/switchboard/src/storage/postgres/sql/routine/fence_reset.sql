
-- Forgets what was seen of a duty. Nothing comes back when there was nothing.
CREATE OR REPLACE FUNCTION tenure.fence_reset(p_duty text, p_by text, p_reason text)
RETURNS TABLE (duty text, epoch bigint, instance text, updated_at timestamptz)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM tenure.inbox_position WHERE only_row FOR UPDATE;
    RETURN QUERY WITH gone AS (
        DELETE FROM tenure.ingest_fence f WHERE f.duty = p_duty RETURNING f.*
    ), noted AS (
        INSERT INTO tenure.token_audit_log
            (token_id, action_type, operator_identity, reason, performed_at, metadata)
        SELECT g.duty, 'fence_reset', p_by, p_reason, clock_timestamp(),
            json_build_object('epoch', g.epoch, 'instance', g.instance)::text
        FROM gone g
    ) SELECT g.duty, g.epoch, g.instance, g.updated_at FROM gone g;
END $$;
