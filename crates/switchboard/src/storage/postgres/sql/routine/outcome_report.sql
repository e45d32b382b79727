
-- Records the outcomes of a message. Returns why the token has ended, the number of targets whose
-- outcome changed, and whether the message exists. Reports of one message are serialised.
CREATE OR REPLACE FUNCTION tenure.outcome_report(
    p_at timestamptz, p_request uuid, p_type text, p_endpoint text, p_acked text[],
    p_failed text[], p_token text
) RETURNS TABLE (ended text, changed bigint, found boolean)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz;
    v_position bigint;
    v_state text;
    v_became text;
    v_changed bigint;
BEGIN
    PERFORM tenure.ingest_isolation();
    -- As in connector_beat_apply: nothing gets a number below the bound of what can be counted.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('tenure.connector_stats_progress', 0));
    ended := tenure.token_ended(p_token, false);
    IF ended IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT m.position, m.lifecycle_state INTO v_position, v_state
    FROM tenure.message_inbox m WHERE m.request_id = p_request FOR NO KEY UPDATE;
    IF v_position IS NULL THEN
        RETURN QUERY SELECT NULL, 0::bigint, false;
        RETURN;
    END IF;
    v_now := coalesce(p_at, tenure.switchboard_now());
    WITH told AS (
        INSERT INTO tenure.inbox_outcome AS o
            (request_id, target, connector_type, endpoint_identity, reported_at, acked_at, arrival)
        SELECT p_request, t.target, p_type, p_endpoint, v_now, t.acked_at,
            CASE WHEN t.acked_at IS NOT NULL
                THEN nextval('tenure.connector_heartbeat_log_id_seq') END
        FROM (
            SELECT DISTINCT ON (u.target COLLATE "C") u.target, u.acked_at FROM (
                SELECT a.target, v_now AS acked_at FROM unnest(p_acked) AS a(target)
                UNION ALL
                SELECT f.target, NULL FROM unnest(p_failed) AS f(target)
            ) AS u
            ORDER BY u.target COLLATE "C", u.acked_at
        ) AS t
        ON CONFLICT (request_id, target) DO UPDATE
        SET reported_at = excluded.reported_at, acked_at = excluded.acked_at,
            arrival = excluded.arrival
        WHERE o.acked_at IS NULL AND excluded.acked_at IS NOT NULL
        RETURNING true
    )
    SELECT count(*) INTO v_changed FROM told;
    v_became := 'dispatched';
    IF EXISTS (SELECT FROM tenure.inbox_outcome o
        WHERE o.request_id = p_request AND o.acked_at IS NULL)
    THEN
        v_became := 'failed';
    END IF;
    IF v_changed > 0 AND v_became <> v_state THEN
        UPDATE tenure.message_inbox SET lifecycle_state = v_became WHERE position = v_position;
    END IF;
    RETURN QUERY SELECT NULL, v_changed, true;
END $$;
