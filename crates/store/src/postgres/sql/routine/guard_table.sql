-- Refuses a change of a guarded table unless its transaction has asserted a hold. It runs before
-- each row, not at the commit: whatever undoes the assertion, a ROLLBACK TO SAVEPOINT or a handled
-- exception, undoes every change that was made after it.
CREATE OR REPLACE FUNCTION tenure.guard_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    v_fenced constant text[] := nullif(current_setting('tenure.fenced', true), '');
BEGIN
    IF v_fenced[1] = pg_current_xact_id_if_assigned()::text
        AND (TG_NARGS = 0 OR TG_ARGV[0] = ANY (v_fenced[2:]))
    THEN
        IF TG_OP = 'DELETE' THEN
            RETURN OLD;
        END IF;
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '%.% is guarded: this transaction has asserted no hold of %',
        TG_TABLE_SCHEMA, TG_TABLE_NAME, coalesce(TG_ARGV[0], 'any duty')
        USING ERRCODE = 'TN002',
            DETAIL = 'A rollback to a savepoint undoes an assertion that was made after it.',
            HINT = 'Call tenure.assert_hold in this transaction, before the change.';
END $$;

-- Removes the guard from a table: changes need no hold any more.
CREATE OR REPLACE FUNCTION tenure.unguard_table(p_table regclass) RETURNS void
LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
    v_name constant text := replace('tenure.guard', '.', '_');
    v_part regclass;
BEGIN
    EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', v_name, p_table);
    FOR v_part IN SELECT p_table UNION SELECT relid FROM pg_partition_tree(p_table) LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', v_name || '_truncate', v_part);
    END LOOP;
END $$;

-- Guards a table and its partitions: each change requires a hold, any or one of `p_scope`, written
-- `group` or `group/duty`. The table's owner calls this; it can be repeated.
CREATE OR REPLACE FUNCTION tenure.guard_table(
    p_table regclass, p_scope text DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_name constant text := replace('tenure.guard', '.', '_');
    v_scope constant text := coalesce(quote_literal(p_scope), '');
    v_part regclass;
BEGIN
    PERFORM tenure.unguard_table(p_table);
    EXECUTE format('CREATE TRIGGER %I BEFORE INSERT OR UPDATE OR DELETE ON %s '
        'FOR EACH ROW EXECUTE FUNCTION tenure.guard_change(%s)', v_name, p_table, v_scope);
    -- Partitions inherit the row triggers of their table, but not its statement triggers.
    FOR v_part IN SELECT p_table UNION SELECT relid FROM pg_partition_tree(p_table) LOOP
        EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON %s '
            'FOR EACH STATEMENT EXECUTE FUNCTION tenure.guard_change(%s)',
            v_name || '_truncate', v_part, v_scope);
    END LOOP;
END $$;
