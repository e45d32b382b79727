
-- Revokes a token, even an expired one, and records it. Returns whether it did, and whether the
-- token exists. A transaction that checks a token before a change holds one of these locks until it
-- ends: events and letters the second, all others the first, or that of the token's row
-- (token_ended). So after this returns, nothing more is changed with the token.
CREATE OR REPLACE FUNCTION tenure.token_revoke(p_token text, p_by text, p_reason text)
RETURNS TABLE (done boolean, is_there boolean)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('tenure.connector_stats_progress', 0));
    PERFORM FROM tenure.inbox_position WHERE only_row FOR UPDATE;
    UPDATE tenure.connector_tokens
    SET revoked_at = clock_timestamp(), revoked_by = p_by, revoked_reason = p_reason
    WHERE token_id = p_token AND revoked_at IS NULL;
    done := FOUND;
    IF done THEN
        INSERT INTO tenure.token_audit_log
            (token_id, action_type, operator_identity, reason, performed_at, metadata)
        VALUES (p_token, 'revoke', p_by, p_reason, clock_timestamp(), '{}');
    END IF;
    is_there := EXISTS (SELECT FROM tenure.connector_tokens WHERE token_id = p_token);
    RETURN NEXT;
END $$;
