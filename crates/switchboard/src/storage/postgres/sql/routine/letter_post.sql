
-- Stores a dead letter once. One row: why its gate stays closed, or `kept` with its id.
CREATE OR REPLACE FUNCTION tenure.letter_post(
    p_token text, p_duty text, p_epoch bigint, p_instance text, p_id uuid, p_digest bytea,
    p_channel text, p_provider text, p_endpoint text, p_event text, p_error_class text,
    p_reason text, p_attempts bigint, p_envelope text
) RETURNS TABLE (
    item bigint, verdict text, epoch bigint, instance text, updated_at timestamptz,
    id uuid, duplicate boolean
)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_id uuid;
BEGIN
    PERFORM tenure.ingest_isolation();
    -- Fences are checked for one group at a time.
    PERFORM FROM tenure.inbox_position WHERE only_row FOR UPDATE;
    RETURN QUERY SELECT g.*, NULL::uuid, NULL::boolean FROM tenure.ingest_gate(
        ARRAY[p_token], ARRAY[p_duty], ARRAY[p_epoch], ARRAY[p_instance]) AS g;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT l.id INTO v_id FROM tenure.dead_letter l WHERE l.digest = p_digest;
    IF v_id IS NULL THEN
        INSERT INTO tenure.dead_letter (id, digest, posted_at, source_channel, source_provider,
            source_endpoint_identity, external_event_id, error_class, reason, attempts, duty,
            authenticated_token_id, envelope)
        VALUES (p_id, p_digest, clock_timestamp(), p_channel, p_provider, p_endpoint, p_event,
            p_error_class, p_reason, p_attempts, p_duty, p_token, p_envelope);
    END IF;
    RETURN QUERY SELECT 1::bigint, 'kept', NULL::bigint, NULL::text, NULL::timestamptz,
        coalesce(v_id, p_id), v_id IS NOT NULL;
END $$;
