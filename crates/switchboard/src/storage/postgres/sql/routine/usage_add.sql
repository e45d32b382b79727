
-- Adds to the usage of tokens, in the order of their names, so that two replicas that count at the
-- same time do not deadlock.
CREATE OR REPLACE FUNCTION tenure.usage_add(
    p_tokens text[], p_days text[], p_requests bigint[], p_accepted bigint[],
    p_duplicates bigint[], p_refused bigint[]
) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
DECLARE
    v_minute timestamptz := date_trunc('minute', clock_timestamp());
    v_used record;
BEGIN
    FOR v_used IN
        SELECT u.token, u.day::date AS day, sum(u.requests)::bigint AS requests,
            sum(u.accepted)::bigint AS accepted, sum(u.duplicates)::bigint AS duplicates,
            sum(u.refused)::bigint AS refused
        FROM unnest(p_tokens, p_days, p_requests, p_accepted, p_duplicates, p_refused)
            AS u(token, day, requests, accepted, duplicates, refused)
        GROUP BY u.token, u.day ORDER BY u.token COLLATE "C", u.day COLLATE "C"
    LOOP
        INSERT INTO tenure.token_usage AS t
            (token_id, day, requests, accepted, duplicates, refused)
        VALUES (v_used.token, v_used.day, v_used.requests, v_used.accepted, v_used.duplicates,
            v_used.refused)
        ON CONFLICT (token_id, day) DO UPDATE SET requests = t.requests + excluded.requests,
            accepted = t.accepted + excluded.accepted,
            duplicates = t.duplicates + excluded.duplicates,
            refused = t.refused + excluded.refused;
        UPDATE tenure.connector_tokens SET last_used_at = v_minute
        WHERE token_id = v_used.token AND (last_used_at IS NULL OR last_used_at < v_minute);
    END LOOP;
END $$;
