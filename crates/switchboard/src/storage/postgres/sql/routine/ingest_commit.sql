
-- Stores a group of events, each once. A commit locks the row of inbox_position until it ends: so
-- commits are serialised, each statement here sees all earlier ones, and positions become visible
-- in order.
--
-- `p_gates` gives each event's token and fence as an index into the first four arrays. An event has
-- a later round if its previous hour's key is the key of an earlier event in this group.
--
-- Returns only exceptions: gates that stay closed, and events that already existed (`same`). The
-- last row (`stored`) has the number of new events.
CREATE OR REPLACE FUNCTION tenure.ingest_commit(
    p_tokens text[], p_duties text[], p_epochs bigint[], p_instances text[],
    p_last_round integer, p_rounds integer[], p_gates integer[], p_ids uuid[], p_digests bytea[],
    p_previous bytea[], p_payloads bytea[], p_observed timestamptz[], p_channels text[],
    p_providers text[], p_endpoints text[], p_senders text[], p_threads text[], p_tiers text[],
    p_keys text[], p_envelopes text[]
) RETURNS TABLE (
    item bigint, verdict text, epoch bigint, instance text, updated_at timestamptz,
    request_id uuid, reused boolean
)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_last bigint;
    v_lineage text;
    v_now timestamptz;
    v_gate record;
    v_open boolean[] := array_fill(true, ARRAY[cardinality(p_tokens)]);
    v_fresh boolean[] := array_fill(true, ARRAY[cardinality(p_ids)]);
    v_round integer := 0;
    -- Events to look up again: an earlier one in this round has the same key.
    v_left bigint[];
    v_found record;
    v_seen record;
    v_stored bigint;
BEGIN
    PERFORM tenure.ingest_isolation();
    SELECT greatest(last, floor), lineage INTO STRICT v_last, v_lineage
    FROM tenure.inbox_position WHERE only_row FOR UPDATE;
    IF v_lineage IS NOT NULL THEN
        -- Not if it is null: a server that no longer discloses its timeline still accepts events.
        IF v_lineage <> tenure.inbox_lineage() THEN
            PERFORM tenure.inbox_recognise();
            SELECT greatest(last, floor) INTO STRICT v_last
            FROM tenure.inbox_position WHERE only_row;
        END IF;
    END IF;
    FOR v_gate IN SELECT * FROM tenure.ingest_gate(p_tokens, p_duties, p_epochs, p_instances) LOOP
        v_open[v_gate.gate] := false;
        item := v_gate.gate;
        verdict := v_gate.verdict;
        epoch := v_gate.epoch;
        instance := v_gate.instance;
        updated_at := v_gate.updated_at;
        RETURN NEXT;
    END LOOP;
    v_now := tenure.switchboard_now();
    WHILE v_round <= p_last_round LOOP
        -- Keys found are locked, so that retention does not delete them before they are seen again.
        -- For a key that retention is deleting, this waits, and the event is new.
        WITH looked AS MATERIALIZED (
            SELECT u.item, u.id, u.digest, u.payload, u.observed,
                row_number() OVER (PARTITION BY u.digest ORDER BY u.item) AS turn,
                CASE WHEN is_earlier THEN earlier.request_id ELSE own.request_id END AS old_id,
                CASE WHEN is_earlier THEN u.previous ELSE u.digest END AS old_digest,
                CASE WHEN is_earlier THEN earlier.payload_digest ELSE own.payload_digest END
                    <> u.payload AS reused
            FROM unnest(p_gates, p_rounds, p_ids, p_digests, p_previous, p_payloads, p_observed)
                WITH ORDINALITY AS u(gate, round, id, digest, previous, payload, observed, item)
            LEFT JOIN LATERAL (
                SELECT x.request_id, x.payload_digest, x.first_seen_at, x.observed_at
                FROM tenure.ingest_dedupe x WHERE x.dedupe_digest = u.digest OFFSET 0 FOR UPDATE
            ) AS own ON true
            LEFT JOIN LATERAL (
                SELECT x.request_id, x.payload_digest, x.first_seen_at, x.observed_at
                FROM tenure.ingest_dedupe x
                WHERE x.dedupe_digest = u.previous
                    AND x.observed_at > u.observed - interval '1 hour' OFFSET 0 FOR UPDATE
            ) AS earlier ON true
            -- Of two, the first seen: a resubmission gets the same answer.
            CROSS JOIN LATERAL (SELECT earlier.request_id IS NOT NULL AND (
                own.request_id IS NULL OR (earlier.first_seen_at, earlier.request_id)
                    < (own.first_seen_at, own.request_id)) AS is_earlier) AS which
            WHERE u.round = v_round AND v_open[u.gate]
                AND (v_left IS NULL OR u.item = ANY (v_left))
        ), stored AS (
            INSERT INTO tenure.ingest_dedupe (dedupe_digest, request_id, payload_digest,
                observed_at, first_seen_at, last_seen_at)
            SELECT digest, id, payload, observed, v_now, v_now
            FROM looked WHERE old_id IS NULL AND turn = 1
        )
        SELECT array_agg(item) FILTER (WHERE old_id IS NOT NULL) AS items,
            array_agg(old_id) FILTER (WHERE old_id IS NOT NULL) AS ids,
            array_agg(old_digest) FILTER (WHERE old_id IS NOT NULL) AS digests,
            array_agg(reused) FILTER (WHERE old_id IS NOT NULL) AS reused,
            array_agg(item) FILTER (WHERE old_id IS NULL) AS left_over
        INTO v_found FROM looked WHERE old_id IS NOT NULL OR turn > 1;
        FOR v_n IN 1 .. coalesce(cardinality(v_found.items), 0) LOOP
            v_fresh[v_found.items[v_n]] := false;
        END LOOP;
        -- One statement per key: no plan can compare all with all.
        FOR v_seen IN
            SELECT u.digest, count(*) AS times, count(*) FILTER (WHERE u.reused) AS reused
            FROM unnest(v_found.digests, v_found.reused) AS u(digest, reused)
            GROUP BY u.digest ORDER BY u.digest
        LOOP
            UPDATE tenure.ingest_dedupe
            SET seen = seen + v_seen.times, reused = reused + v_seen.reused,
                last_seen_at = CASE WHEN last_seen_at < v_now - interval '1 hour' THEN v_now
                    ELSE last_seen_at END
            WHERE dedupe_digest = v_seen.digest;
        END LOOP;
        RETURN QUERY SELECT u.item, 'same', NULL::bigint, NULL::text, NULL::timestamptz, u.id,
            u.reused
        FROM unnest(v_found.items, v_found.ids, v_found.reused) AS u(item, id, reused);
        v_left := v_found.left_over;
        IF v_left IS NULL THEN
            v_round := v_round + 1;
        END IF;
    END LOOP;
    INSERT INTO tenure.message_inbox (position, request_id, received_at, source_channel,
        source_provider, source_endpoint_identity, source_sender_identity,
        source_thread_identity, policy_tier, dedupe_key, authenticated_token_id, envelope)
    SELECT v_last + row_number() OVER (ORDER BY u.item), u.id, v_now, u.channel, u.provider,
        u.endpoint, u.sender, u.thread, u.tier, u.key, p_tokens[u.gate], u.envelope
    FROM unnest(p_gates, p_ids, p_channels, p_providers, p_endpoints, p_senders, p_threads,
            p_tiers, p_keys, p_envelopes) WITH ORDINALITY
        AS u(gate, id, channel, provider, endpoint, sender, thread, tier, key, envelope, item)
    WHERE v_open[u.gate] AND v_fresh[u.item];
    GET DIAGNOSTICS v_stored = ROW_COUNT;
    IF v_stored > 0 THEN
        UPDATE tenure.inbox_position SET last = v_last + v_stored, last_id = (
            SELECT m.request_id FROM tenure.message_inbox m WHERE m.position = v_last + v_stored)
        WHERE only_row;
    END IF;
    RETURN QUERY SELECT v_stored, 'stored', NULL::bigint, NULL::text, NULL::timestamptz,
        NULL::uuid, NULL::boolean;
END $$;
