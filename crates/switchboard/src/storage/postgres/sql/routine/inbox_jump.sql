
-- Identifies the history of commits that this server writes. A promoted standby, and a server
-- restored to a point in time, begin another timeline; a copy of the rows is on another system.
-- Null if the server does not disclose it, or not to this role.
CREATE OR REPLACE FUNCTION tenure.inbox_lineage() RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (
        SELECT c.system_identifier || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
        FROM pg_control_system() AS c);
EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
    RETURN NULL;
END $$;

-- Starts a new incarnation, records it, and returns the position above which it continues: the next
-- full second of Unix time in microseconds, and at least a million above every known position.
CREATE OR REPLACE FUNCTION tenure.inbox_jump(p_by text, p_reason text) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
DECLARE
    v_second bigint := least(floor(extract(epoch FROM clock_timestamp())), 4503599627)::bigint;
    v_last bigint;
    v_floor bigint;
BEGIN
    UPDATE tenure.inbox_position AS p
    SET floor = greatest((v_second + 1) * 1000000, greatest(p.last, p.floor) + 1000000)
    WHERE p.only_row RETURNING p.last, p.floor INTO STRICT v_last, v_floor;
    INSERT INTO tenure.token_audit_log
        (token_id, action_type, operator_identity, reason, performed_at, metadata)
    VALUES ('inbox', 'inbox_adopt', p_by, p_reason, clock_timestamp(),
        json_build_object('last', v_last, 'floor', v_floor)::text);
    RETURN v_floor;
END $$;

-- Starts a new incarnation if this is not the server of the last commit, and records the lineage. A
-- role that may not read the lineage changes nothing.
CREATE OR REPLACE FUNCTION tenure.inbox_recognise() RETURNS void
LANGUAGE plpgsql SET lock_timeout = '3s' SET enable_seqscan = off AS $$
DECLARE
    v_known text;
    v_lineage text := tenure.inbox_lineage();
BEGIN
    SELECT lineage INTO STRICT v_known FROM tenure.inbox_position WHERE only_row FOR UPDATE;
    IF v_known <> v_lineage THEN
        PERFORM tenure.inbox_jump('switchboard',
            format('PostgreSQL %s instead of %s', v_lineage, v_known));
    END IF;
    UPDATE tenure.inbox_position SET lineage = v_lineage
    WHERE only_row AND lineage IS DISTINCT FROM coalesce(v_lineage, lineage);
END $$;
