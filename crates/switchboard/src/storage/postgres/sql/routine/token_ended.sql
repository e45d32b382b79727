
-- Why a token does not count any more: `revoked`, `expired` or `gone`; null while it does, and
-- without one. Until the transaction ends nobody can revoke it: see token_revoke. What may take
-- long keeps nobody from revoking others, and what is frequent writes no lock into the token's row.
CREATE OR REPLACE FUNCTION tenure.token_ended(p_token text, p_takes_long boolean) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
    v_ended text;
BEGIN
    IF p_token IS NULL THEN
        RETURN NULL;
    END IF;
    IF p_takes_long THEN
        PERFORM FROM tenure.connector_tokens WHERE token_id = p_token FOR SHARE;
    ELSE
        PERFORM pg_advisory_xact_lock_shared(
            hashtextextended('tenure.connector_stats_progress', 0));
    END IF;
    SELECT CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked'
        WHEN t.expires_at <= clock_timestamp() THEN 'expired' END
    INTO v_ended FROM tenure.connector_tokens t WHERE t.token_id = p_token;
    RETURN CASE WHEN FOUND THEN v_ended ELSE 'gone' END;
END $$;
