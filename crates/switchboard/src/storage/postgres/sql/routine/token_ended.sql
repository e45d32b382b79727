
-- Returns why a token is no longer valid: `revoked`, `expired` or `gone`; null if it is valid or no
-- token is given. Until the transaction ends nobody can revoke it: see token_revoke. Slow callers
-- do not block revoking other tokens, and frequent ones write no lock into the token's row.
CREATE OR REPLACE FUNCTION tenure.token_ended(p_token text, p_takes_long boolean) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
    v_ended text;
BEGIN
    IF p_token IS NULL THEN
        RETURN NULL;
    END IF;
    -- At another level, what follows would not see a revocation that it has waited for.
    PERFORM tenure.ingest_isolation();
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
