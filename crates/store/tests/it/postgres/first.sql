-- A store as it was before migration 0002, functions included. Never changed.
-- What must be there before migrations can be counted.
CREATE SCHEMA IF NOT EXISTS tenure;
CREATE TABLE IF NOT EXISTS tenure.migration (
    number bigint NOT NULL PRIMARY KEY,
    name text NOT NULL,
    breaking text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- Sessions, holds, checkpoints, group documents and the audit trail.
-- Names sort by bytes ("C"), as every other store sorts them.

-- One row for each instance that was ever a member. `expires_at` is judged by clock_timestamp()
-- alone. `ended` is final: a session that somebody has seen expired never lives again, not even
-- when the server's clock is set back.
CREATE TABLE tenure.session (
    group_name text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    nonce uuid NOT NULL,
    note bytea NOT NULL,
    ttl interval NOT NULL,
    expires_at timestamptz NOT NULL,
    ended boolean NOT NULL DEFAULT false,
    evicted boolean NOT NULL DEFAULT false,
    -- Grows when holds leave this session: while it stands still, none can have been lost.
    left_count bigint NOT NULL,
    PRIMARY KEY (group_name, instance)
) WITH (fillfactor = 50);

-- The nonces of sessions, from their first use on, so that none is used twice.
CREATE TABLE tenure.spent (
    group_name text COLLATE "C" NOT NULL,
    nonce uuid NOT NULL,
    used_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (group_name, nonce)
);

-- The last grant of each duty. Rows are never deleted: the epoch must survive (R2).
CREATE TABLE tenure.hold (
    group_name text COLLATE "C" NOT NULL,
    duty text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL CHECK (epoch BETWEEN 0 AND 9007199254740991),
    instance text COLLATE "C" NOT NULL,
    nonce uuid NOT NULL,
    held boolean NOT NULL,
    PRIMARY KEY (group_name, duty)
) WITH (fillfactor = 70);

CREATE TABLE tenure.checkpoint (
    group_name text COLLATE "C" NOT NULL,
    duty text COLLATE "C" NOT NULL,
    version bigint NOT NULL CHECK (version BETWEEN 1 AND 9007199254740991),
    epoch bigint NOT NULL,
    instance text COLLATE "C" NOT NULL,
    document bytea NOT NULL,
    written_at timestamptz NOT NULL,
    PRIMARY KEY (group_name, duty)
) WITH (fillfactor = 70);

-- A ring: version modulo the number of slots.
CREATE TABLE tenure.history (
    group_name text COLLATE "C" NOT NULL,
    duty text COLLATE "C" NOT NULL,
    slot integer NOT NULL,
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    instance text COLLATE "C" NOT NULL,
    document bytea NOT NULL,
    written_at timestamptz NOT NULL,
    PRIMARY KEY (group_name, duty, slot)
) WITH (fillfactor = 70);

CREATE TABLE tenure.group_document (
    group_name text COLLATE "C" NOT NULL PRIMARY KEY,
    version bigint NOT NULL CHECK (version BETWEEN 1 AND 9007199254740991),
    document bytea NOT NULL
);

CREATE TABLE tenure.audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    group_name text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    instance text COLLATE "C" NOT NULL,
    duty text COLLATE "C",
    epoch bigint,
    reason text NOT NULL
);

CREATE INDEX audit_by_group ON tenure.audit (group_name, seq);
-- Opens a session. Answers open, taken, spent or evicted.
CREATE OR REPLACE FUNCTION tenure.session_open(
    p_group text, p_instance text, p_nonce uuid, p_ttl_ms bigint, p_note bytea, p_mark bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
    v_ttl constant interval := p_ttl_ms * interval '1 millisecond';
    v_row tenure.session%ROWTYPE;
    v_live boolean;
    v_is_there boolean;
    v_spent boolean;
BEGIN
    -- Members that ended more than a day ago; evictions are remembered. What is in use can wait.
    DELETE FROM tenure.session WHERE (group_name, instance) IN (
        SELECT x.group_name, x.instance FROM tenure.session x
        WHERE x.group_name = p_group AND x.instance <> p_instance AND NOT x.evicted
            AND x.expires_at < clock_timestamp() - interval '1 day'
        FOR UPDATE SKIP LOCKED
    );
    DELETE FROM tenure.spent
    WHERE group_name = p_group AND used_at < clock_timestamp() - interval '7 days';
    LOOP
        SELECT * INTO v_row FROM tenure.session
        WHERE group_name = p_group AND instance = p_instance FOR UPDATE;
        v_is_there := FOUND;
        v_spent := EXISTS (
            SELECT FROM tenure.spent WHERE group_name = p_group AND nonce = p_nonce
        );
        IF NOT v_is_there AND v_spent THEN
            RETURN 'spent';
        ELSIF v_is_there THEN
            v_live := NOT v_row.ended AND v_row.expires_at > clock_timestamp();
            IF v_row.evicted THEN
                RETURN 'evicted';
            ELSIF v_live AND v_row.nonce <> p_nonce THEN
                RETURN 'taken';
            ELSIF NOT v_live AND v_spent THEN
                RETURN 'spent';
            END IF;
            UPDATE tenure.session SET
                nonce = p_nonce, note = p_note, ttl = v_ttl, ended = false,
                expires_at = clock_timestamp() + v_ttl,
                left_count = CASE WHEN v_live THEN left_count ELSE p_mark END
            WHERE group_name = p_group AND instance = p_instance;
            -- The same nonce again is the same opening: it was recorded before.
            EXIT WHEN NOT v_live;
            RETURN 'open';
        END IF;
        INSERT INTO tenure.session (
            group_name, instance, nonce, note, ttl, expires_at, left_count
        ) VALUES (
            p_group, p_instance, p_nonce, p_note, v_ttl, clock_timestamp() + v_ttl, p_mark
        ) ON CONFLICT (group_name, instance) DO NOTHING;
        -- Otherwise somebody was faster: look at what they made.
        EXIT WHEN FOUND;
    END LOOP;
    -- A nonce is spent from its first use on: what has ended never comes back (R9).
    INSERT INTO tenure.spent (group_name, nonce) VALUES (p_group, p_nonce) ON CONFLICT DO NOTHING;
    INSERT INTO tenure.audit (group_name, kind, instance, reason)
    VALUES (p_group, 'joined', p_instance, 'open');
    PERFORM pg_notify('tenure.changes', p_group);
    RETURN 'open';
END $$;
-- Frees all holds of a session, in the order of their keys, after waiting for effects that are
-- running under them, and records why. Answers how many there were.
CREATE OR REPLACE FUNCTION tenure.hold_free_all(
    p_group text, p_instance text, p_nonce uuid, p_kind text, p_reason text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_freed bigint;
BEGIN
    PERFORM 1 FROM (
        SELECT FROM tenure.hold
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce AND held
        ORDER BY duty FOR UPDATE
    ) AS locked;
    WITH freed AS (
        UPDATE tenure.hold SET held = false
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce AND held
        RETURNING duty, epoch
    ), recorded AS (
        INSERT INTO tenure.audit (group_name, kind, instance, duty, epoch, reason)
        SELECT p_group, p_kind, p_instance, duty, epoch, p_reason FROM freed ORDER BY duty
    )
    SELECT count(*) INTO v_freed FROM freed;
    RETURN v_freed;
END $$;

-- Closes a session. Answers closed or ended.
CREATE OR REPLACE FUNCTION tenure.session_close(
    p_group text, p_instance text, p_nonce uuid, p_reason text
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
BEGIN
    -- A closed session is seen by nobody before its holds are free: it is one transaction. Holds
    -- before sessions, as everywhere.
    PERFORM 1 FROM (
        SELECT FROM tenure.hold
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce AND held
        ORDER BY duty FOR UPDATE
    ) AS locked;
    UPDATE tenure.session SET ended = true
    WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
        AND NOT ended AND expires_at > clock_timestamp();
    IF NOT FOUND THEN
        RETURN 'ended';
    END IF;
    PERFORM tenure.hold_free_all(p_group, p_instance, p_nonce, 'released', p_reason);
    INSERT INTO tenure.audit (group_name, kind, instance, reason)
    VALUES (p_group, 'left', p_instance, p_reason);
    PERFORM pg_notify('tenure.changes', p_group);
    RETURN 'closed';
END $$;

-- Evicts an instance; `p_now` also ends its holds. Answers how many holds ended, or null when it
-- was no member.
CREATE OR REPLACE FUNCTION tenure.session_evict(
    p_group text, p_instance text, p_now boolean, p_reason text
) RETURNS bigint LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
    v_row tenure.session%ROWTYPE;
    v_freed bigint := 0;
BEGIN
    INSERT INTO tenure.session (
        group_name, instance, nonce, note, ttl, expires_at, ended, left_count
    ) VALUES (
        p_group, p_instance, '00000000-0000-4000-8000-000000000000', '', interval '0',
        clock_timestamp(), true, 0
    ) ON CONFLICT (group_name, instance) DO NOTHING;
    SELECT * INTO v_row FROM tenure.session
    WHERE group_name = p_group AND instance = p_instance;
    IF p_now AND NOT v_row.ended AND v_row.expires_at > clock_timestamp() THEN
        -- Waits for effects that are running under these holds: once this answers, none is.
        v_freed := tenure.hold_free_all(p_group, p_instance, v_row.nonce, 'evicted', p_reason);
    END IF;
    SELECT * INTO v_row FROM tenure.session
    WHERE group_name = p_group AND instance = p_instance FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session was swept meanwhile' USING ERRCODE = '40001';
    END IF;
    IF p_now AND NOT v_row.ended AND v_row.expires_at > clock_timestamp() THEN
        -- What was granted between the two looks; nothing can be any more.
        v_freed := v_freed
            + tenure.hold_free_all(p_group, p_instance, v_row.nonce, 'evicted', p_reason);
    END IF;
    UPDATE tenure.session SET evicted = true, ended = ended OR p_now
    WHERE group_name = p_group AND instance = p_instance;
    IF NOT v_row.evicted THEN
        INSERT INTO tenure.audit (group_name, kind, instance, reason)
        VALUES (p_group, 'evicted', p_instance, p_reason);
    END IF;
    PERFORM pg_notify('tenure.changes', p_group);
    IF v_row.ended OR v_row.expires_at <= clock_timestamp() THEN
        RETURN NULL;
    END IF;
    RETURN v_freed;
END $$;
-- Claims duties for a session. One row per duty, `item` counting from 1 as they were given:
-- granted, already (with epoch), held (with holder and remaining_ms if known) or no_session.
--
-- How the statements of this and the other batch functions are written: each row is looked up by
-- its key (LATERAL ... OFFSET 0) and written by its key (ON CONFLICT), so that no plan, made for
-- however small a table or batch, compares each name with each. What this very transaction has
-- written is told by `xmin`.
CREATE OR REPLACE FUNCTION tenure.hold_claim(
    p_group text, p_instance text, p_nonce uuid,
    p_duties text[], p_floors bigint[], p_reason text
) RETURNS TABLE (
    item bigint, outcome text, epoch bigint, mark bigint, holder text, remaining_ms bigint
) LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_mark bigint;
    v_granted bigint;
    v_duties text[];
    v_floors bigint[];
BEGIN
    SELECT left_count INTO v_mark FROM tenure.session
    WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
        AND NOT ended AND NOT evicted AND expires_at > clock_timestamp();
    IF NOT FOUND THEN
        RETURN QUERY SELECT w.item, 'no_session', NULL::bigint, NULL::bigint, NULL, NULL::bigint
        FROM unnest(p_duties) WITH ORDINALITY AS w(duty, item);
        RETURN;
    END IF;

    INSERT INTO tenure.hold (group_name, duty, epoch, instance, nonce, held)
    SELECT p_group, w.duty, 0, '', '00000000-0000-4000-8000-000000000000', false
    FROM unnest(p_duties) AS w(duty)
    LEFT JOIN LATERAL (
        SELECT true AS is_there FROM tenure.hold x
        WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
    ) AS h ON true
    WHERE h.is_there IS NULL
    ORDER BY w.duty COLLATE "C"
    ON CONFLICT (group_name, duty) DO NOTHING;

    -- A row that somebody else has locked is being committed under, or claimed: it is held. So a
    -- holder that is stuck in a transaction delays nobody's other claims. From here on only what
    -- was locked here is looked at: a row that comes free later may have a holder whose session a
    -- later statement does not see yet.
    SELECT array_agg(w.duty), array_agg(w.floor) INTO v_duties, v_floors FROM (
        SELECT u.duty, u.floor FROM unnest(p_duties, p_floors) AS u(duty, floor)
        ORDER BY u.duty COLLATE "C" OFFSET 0
    ) AS w CROSS JOIN LATERAL (
        SELECT FROM tenure.hold x
        WHERE x.group_name = p_group AND x.duty = w.duty FOR UPDATE SKIP LOCKED
    ) AS locked;

    -- Our own session stays as it is until we are through: an eviction waits for this claim, or
    -- this claim finds it.
    PERFORM FROM tenure.session
    WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
        AND NOT ended AND NOT evicted FOR KEY SHARE;
    IF NOT FOUND THEN
        v_duties := NULL;
    END IF;

    -- Sessions that look expired are locked, looked at again, and ended for good. A keep-alive
    -- that began before the expiry and is not committed yet holds that lock; one that comes later
    -- finds the session ended. Without both, keep-alive and takeover can succeed together.
    WITH holder AS (
        SELECT DISTINCT h.instance, h.nonce FROM unnest(v_duties) AS w(duty)
        CROSS JOIN LATERAL (
            SELECT x.instance, x.nonce FROM tenure.hold x
            WHERE x.group_name = p_group AND x.duty = w.duty AND x.held OFFSET 0
        ) AS h
    ), suspect AS (
        SELECT s.instance FROM (SELECT * FROM holder ORDER BY instance OFFSET 0) AS o
        CROSS JOIN LATERAL (
            SELECT x.instance FROM tenure.session x
            WHERE x.group_name = p_group AND x.instance = o.instance AND x.nonce = o.nonce
                AND NOT x.ended AND NOT (clock_timestamp() < x.expires_at
                    AND x.expires_at <= clock_timestamp() + x.ttl)
            FOR NO KEY UPDATE
        ) AS s
    )
    UPDATE tenure.session s SET
        ended = s.expires_at <= clock_timestamp(),
        -- More than a TTL ahead: the server's clock was set back. One TTL from now is enough.
        expires_at = least(s.expires_at, clock_timestamp() + s.ttl)
    FROM suspect WHERE s.group_name = p_group AND s.instance = suspect.instance;

    -- From here on a session has ended if it says so; the clock is not asked again.
    WITH free AS MATERIALIZED (
        SELECT h.duty, h.epoch, h.instance, h.held,
            greatest(h.epoch, w.floor, c.epoch) + 1 AS next_epoch
        FROM unnest(v_duties, v_floors) AS w(duty, floor)
        CROSS JOIN LATERAL (
            SELECT x.duty, x.epoch, x.instance, x.nonce, x.held FROM tenure.hold x
            WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
        ) AS h
        LEFT JOIN LATERAL (
            SELECT x.epoch FROM tenure.checkpoint x
            WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
        ) AS c ON true
        LEFT JOIN LATERAL (
            SELECT true AS lives FROM tenure.session x
            WHERE x.group_name = p_group AND x.instance = h.instance AND x.nonce = h.nonce
                AND NOT x.ended OFFSET 0
        ) AS s ON true
        WHERE NOT (h.held AND coalesce(s.lives, false))
    ), granted AS (
        INSERT INTO tenure.hold (group_name, duty, epoch, instance, nonce, held)
        SELECT p_group, duty, next_epoch, p_instance, p_nonce, true FROM free
        ORDER BY duty COLLATE "C"
        ON CONFLICT (group_name, duty) DO UPDATE SET
            epoch = excluded.epoch, instance = excluded.instance, nonce = excluded.nonce,
            held = true
    ), entry AS (
        SELECT 1 AS step, duty, 'expired' AS kind, instance, epoch FROM free WHERE held
        UNION ALL SELECT 2, duty, 'granted', p_instance, next_epoch FROM free
    ), recorded AS (
        INSERT INTO tenure.audit (group_name, kind, instance, duty, epoch, reason)
        SELECT p_group, kind, instance, duty, epoch, p_reason FROM entry ORDER BY duty, step
    )
    SELECT count(*) INTO v_granted FROM free;
    IF v_granted > 0 THEN
        PERFORM pg_notify('tenure.changes', p_group);
    END IF;

    RETURN QUERY SELECT w.item,
        CASE WHEN s.nonce = p_nonce AND h.is_new THEN 'granted'
            WHEN s.nonce = p_nonce THEN 'already'
            ELSE 'held' END,
        h.epoch, v_mark, s.instance,
        greatest(0, extract(epoch FROM s.expires_at - clock_timestamp()) * 1000)::bigint
    FROM unnest(p_duties) WITH ORDINALITY AS w(duty, item)
    LEFT JOIN LATERAL (
        SELECT x.epoch, x.instance, x.nonce, x.held,
            x.xmin = pg_current_xact_id()::xid AS is_new
        FROM tenure.hold x WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
    ) AS h ON true
    LEFT JOIN LATERAL (
        SELECT x.instance, x.nonce, x.expires_at FROM tenure.session x
        WHERE x.group_name = p_group AND x.instance = h.instance AND x.nonce = h.nonce
            AND h.held AND NOT x.ended OFFSET 0
    ) AS s ON true
    ORDER BY w.item;
END $$;
-- Gives holds back. One row per hold, `item` counting from 1: freed, already or not_yours.
CREATE OR REPLACE FUNCTION tenure.hold_release(
    p_group text, p_instance text, p_nonce uuid,
    p_duties text[], p_epochs bigint[], p_reason text
) RETURNS TABLE (item bigint, outcome text)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_freed bigint := 0;
BEGIN
    -- Waits for effects that are running under these holds.
    PERFORM count(*) FROM (
        SELECT u.duty FROM unnest(p_duties) AS u(duty) ORDER BY u.duty COLLATE "C" OFFSET 0
    ) AS w CROSS JOIN LATERAL (
        SELECT FROM tenure.hold x WHERE x.group_name = p_group AND x.duty = w.duty FOR UPDATE
    ) AS locked;
    IF EXISTS (
        SELECT FROM tenure.session
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
            AND NOT ended AND expires_at > clock_timestamp()
    ) THEN
        WITH ours AS MATERIALIZED (
            SELECT h.duty, h.epoch FROM unnest(p_duties, p_epochs) AS w(duty, epoch)
            CROSS JOIN LATERAL (
                SELECT x.duty, x.epoch FROM tenure.hold x
                WHERE x.group_name = p_group AND x.duty = w.duty AND x.epoch = w.epoch
                    AND x.instance = p_instance AND x.nonce = p_nonce AND x.held OFFSET 0
            ) AS h
        ), freed AS (
            INSERT INTO tenure.hold (group_name, duty, epoch, instance, nonce, held)
            SELECT p_group, duty, epoch, p_instance, p_nonce, false FROM ours
            ORDER BY duty COLLATE "C"
            ON CONFLICT (group_name, duty) DO UPDATE SET held = false
        ), recorded AS (
            INSERT INTO tenure.audit (group_name, kind, instance, duty, epoch, reason)
            SELECT p_group, 'released', p_instance, duty, epoch, p_reason FROM ours ORDER BY duty
        )
        SELECT count(*) INTO v_freed FROM ours;
    END IF;
    IF v_freed > 0 THEN
        UPDATE tenure.session SET left_count = left_count + v_freed
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce;
        PERFORM pg_notify('tenure.changes', p_group);
    END IF;
    RETURN QUERY SELECT w.item,
        CASE WHEN h.is_ours AND h.is_new THEN 'freed'
            WHEN h.is_ours THEN 'already'
            ELSE 'not_yours' END
    FROM unnest(p_duties, p_epochs) WITH ORDINALITY AS w(duty, epoch, item)
    LEFT JOIN LATERAL (
        SELECT x.epoch = w.epoch AND x.instance = p_instance AND x.nonce = p_nonce AS is_ours,
            x.xmin = pg_current_xact_id()::xid AS is_new
        FROM tenure.hold x WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
    ) AS h ON true
    ORDER BY w.item;
END $$;
-- Stores checkpoints under holds of one session. One row per commit, `item` counting from 1:
-- saved (number = version), fenced (number = newest epoch) or conflict (number = stored version).
CREATE OR REPLACE FUNCTION tenure.checkpoint_commit(
    p_group text, p_instance text, p_nonce uuid, p_duties text[], p_epochs bigint[],
    p_expected bigint[], p_documents bytea[], p_slots integer
) RETURNS TABLE (item bigint, outcome text, number bigint)
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_live boolean;
    v_saved bigint := 0;
BEGIN
    -- Key share: keep-alives and other commits pass, a takeover does not (R12).
    PERFORM count(*) FROM (
        SELECT u.duty FROM unnest(p_duties) AS u(duty) ORDER BY u.duty COLLATE "C" OFFSET 0
    ) AS w CROSS JOIN LATERAL (
        SELECT FROM tenure.hold x WHERE x.group_name = p_group AND x.duty = w.duty FOR KEY SHARE
    ) AS locked;
    v_live := EXISTS (
        SELECT FROM tenure.session
        WHERE group_name = p_group AND instance = p_instance AND nonce = p_nonce
            AND NOT ended AND expires_at > clock_timestamp()
    );
    WITH saved AS (
        INSERT INTO tenure.checkpoint AS c
            (group_name, duty, version, epoch, instance, document, written_at)
        SELECT p_group, w.duty, w.expected + 1, w.epoch, p_instance, w.document, clock_timestamp()
        FROM unnest(p_duties, p_epochs, p_expected, p_documents)
            AS w(duty, epoch, expected, document)
        CROSS JOIN LATERAL (
            SELECT FROM tenure.hold x
            WHERE x.group_name = p_group AND x.duty = w.duty AND x.epoch = w.epoch
                AND x.instance = p_instance AND x.nonce = p_nonce AND x.held OFFSET 0
        ) AS h
        LEFT JOIN LATERAL (
            SELECT true AS is_there FROM tenure.checkpoint x
            WHERE x.group_name = p_group AND x.duty = w.duty AND w.expected > 0 OFFSET 0
        ) AS e ON true
        -- Without a row only the first version can be written.
        WHERE v_live AND (w.expected = 0 OR e.is_there)
        ORDER BY w.duty COLLATE "C"
        ON CONFLICT (group_name, duty) DO UPDATE SET
            version = excluded.version, epoch = excluded.epoch, instance = excluded.instance,
            document = excluded.document, written_at = excluded.written_at
        WHERE c.version = excluded.version - 1 AND c.epoch <= excluded.epoch
        RETURNING c.duty, c.version, c.epoch, c.document, c.written_at
    ), kept AS (
        INSERT INTO tenure.history
            (group_name, duty, slot, version, epoch, instance, document, written_at)
        SELECT p_group, duty, version % p_slots, version, epoch, p_instance, document, written_at
        FROM saved
        ON CONFLICT (group_name, duty, slot) DO UPDATE SET
            version = excluded.version, epoch = excluded.epoch, instance = excluded.instance,
            document = excluded.document, written_at = excluded.written_at
    )
    SELECT count(*) INTO v_saved FROM saved;
    IF v_saved = cardinality(p_duties) THEN
        RETURN QUERY SELECT w.item, 'saved', w.expected + 1
        FROM unnest(p_expected) WITH ORDINALITY AS w(expected, item);
        RETURN;
    END IF;
    RETURN QUERY SELECT w.item, o.outcome,
        CASE o.outcome WHEN 'saved' THEN w.expected + 1
            WHEN 'conflict' THEN coalesce(c.version, 0)
            ELSE coalesce(greatest(h.epoch, c.epoch), 0) END
    FROM unnest(p_duties, p_epochs, p_expected) WITH ORDINALITY AS w(duty, epoch, expected, item)
    LEFT JOIN LATERAL (
        SELECT x.epoch, x.held AND x.epoch = w.epoch AND x.instance = p_instance
            AND x.nonce = p_nonce AS is_ours
        FROM tenure.hold x WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
    ) AS h ON true
    LEFT JOIN LATERAL (
        SELECT x.version, x.epoch, x.xmin = pg_current_xact_id()::xid AS is_new
        FROM tenure.checkpoint x WHERE x.group_name = p_group AND x.duty = w.duty OFFSET 0
    ) AS c ON true
    CROSS JOIN LATERAL (SELECT CASE
        WHEN c.is_new THEN 'saved'
        WHEN v_live AND h.is_ours AND coalesce(c.epoch, 0) <= w.epoch THEN 'conflict'
        ELSE 'fenced' END AS outcome) AS o
    ORDER BY w.item;
END $$;
-- Undoes the percent escapes of one part of `group/duty`.
CREATE OR REPLACE FUNCTION tenure.unescape(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT convert_from(string_agg(
        CASE WHEN part[1] LIKE '\%__' THEN decode(substr(part[1], 2), 'hex')
            ELSE convert_to(part[1], 'UTF8') END,
        ''::bytea ORDER BY position), 'UTF8')
    FROM regexp_matches(p_text, '%[0-9A-Fa-f]{2}|[^%]+', 'g')
        WITH ORDINALITY AS match(part, position)
$$;

-- For effects in your own transaction: raises TN001 unless `p_instance` holds `p_duty`, written
-- `group/duty`, under `p_epoch`. Until your transaction ends nobody else can be granted the duty
-- (R12), so it must end: when it stands idle for longer than the hold is valid, the server ends it.
CREATE OR REPLACE FUNCTION tenure.assert_hold(
    p_duty text, p_epoch bigint, p_instance text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_group text := tenure.unescape(split_part(p_duty, '/', 1));
    v_duty text := tenure.unescape(substr(p_duty, strpos(p_duty, '/') + 1));
    v_nonce uuid;
    v_left_ms bigint;
    v_limit_ms bigint;
BEGIN
    SELECT nonce INTO v_nonce FROM tenure.hold
    WHERE group_name = v_group AND duty = v_duty AND epoch = p_epoch
        AND instance = p_instance AND held
    FOR KEY SHARE;
    SELECT extract(epoch FROM expires_at - clock_timestamp()) * 900 INTO v_left_ms
    FROM tenure.session
    WHERE group_name = v_group AND instance = p_instance AND nonce = v_nonce AND NOT ended;
    IF v_left_ms IS NULL OR v_left_ms < 1 THEN
        RAISE EXCEPTION '% is not held by % under epoch %', p_duty, p_instance, p_epoch
            USING ERRCODE = 'TN001', HINT = 'Stop this work: the duty belongs to somebody else.';
    END IF;
    SELECT setting::bigint INTO v_limit_ms FROM pg_settings
    WHERE name = 'idle_in_transaction_session_timeout';
    IF v_limit_ms = 0 OR v_limit_ms > v_left_ms THEN
        PERFORM set_config('idle_in_transaction_session_timeout', v_left_ms::text, true);
    END IF;
END $$;
INSERT INTO tenure.migration (number, name, breaking) VALUES (1, 'ground', '');
