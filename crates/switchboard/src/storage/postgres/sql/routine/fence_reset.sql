
-- Deletes the fences of a duty: of one source, or of all if `p_channel` is null. Returns the
-- deleted fences, or only why the token has ended.
CREATE OR REPLACE FUNCTION tenure.fence_reset(
    p_duty text, p_channel text, p_provider text, p_endpoint text, p_by text, p_reason text,
    p_token text
) RETURNS TABLE (duty text, channel text, provider text, endpoint text, epoch bigint,
    instance text, updated_at timestamptz, ended text)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM tenure.ingest_isolation();
    ended := tenure.token_ended(p_token, false);
    IF ended IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM FROM tenure.inbox_position WHERE only_row FOR UPDATE;
    RETURN QUERY WITH gone AS (
        DELETE FROM tenure.ingest_fence f WHERE f.duty = p_duty AND (p_channel IS NULL OR (
            f.source_channel, f.source_provider, f.source_endpoint_identity
        ) = (p_channel, p_provider, p_endpoint)) RETURNING f.*
    ), noted AS (
        INSERT INTO tenure.token_audit_log
            (token_id, action_type, operator_identity, reason, performed_at, metadata)
        SELECT g.duty, 'fence_reset', p_by, p_reason, clock_timestamp(),
            json_build_object('epoch', g.epoch, 'instance', g.instance, 'endpoint_identity',
                nullif(g.source_endpoint_identity, ''))::text
        FROM gone g
    ) SELECT g.duty, g.source_channel, g.source_provider, g.source_endpoint_identity, g.epoch,
        g.instance, g.updated_at, NULL FROM gone g ORDER BY g.source;
END $$;
