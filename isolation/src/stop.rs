//! Places where an operation can be stopped, and the connection that stops it there.

use std::fmt;

use anyhow::Result;
use tokio_postgres::Client;

use crate::state::StateTable;

/// A place where an operation waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A row that exists: locked by the blocker.
    Row { table: String, label: String },
    /// A row that the operation inserts: inserted by the blocker, which does not commit.
    Insertion { table: String, label: String, row: String },
    /// A table that the operation locks.
    Table { table: String },
    /// An advisory lock that the operation takes.
    Key { key: i64 },
    /// A place in the code: the entry of a routine, or before a statement that writes a table.
    Point { name: String },
}

/// Point after the last statement of a transaction that has written something.
pub(crate) const COMMIT: &str = "commit";

/// The functions and triggers by which side A stops. They do nothing for others.
pub(crate) const SCRIPT: &str = "
CREATE FUNCTION iso.stop(p_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') = 'iso-a' THEN
        PERFORM pg_advisory_xact_lock_shared(7, hashtext(p_name));
    END IF;
END $$;
CREATE FUNCTION iso.before_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM iso.stop(format('before %s of %s', TG_OP, TG_TABLE_NAME));
    RETURN NULL;
END $$;
CREATE FUNCTION iso.before_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM iso.stop('commit');
    PERFORM iso.stop(format('commit of %s', TG_TABLE_NAME));
    RETURN NULL;
END $$;
CREATE TABLE iso.point (name text PRIMARY KEY);
INSERT INTO iso.point VALUES ('commit');
DO $$
DECLARE
    v_table record;
    v_routine record;
    v_text text;
BEGIN
    FOR v_table IN
        SELECT c.relname AS name, c.relispartition AS is_part FROM pg_class c
        WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p')
            AND c.relname NOT LIKE '%migration'
            AND c.relname !~ '_p[0-9]{8}$'
    LOOP
        EXECUTE format('CREATE TRIGGER iso_write BEFORE INSERT OR UPDATE OR DELETE ON tenure.%I
            FOR EACH STATEMENT EXECUTE FUNCTION iso.before_write()', v_table.name);
        INSERT INTO iso.point SELECT format('before %s of %s', op, v_table.name)
        FROM unnest(ARRAY['INSERT', 'UPDATE', 'DELETE']) AS op;
        INSERT INTO iso.point VALUES ('commit of ' || v_table.name);
        CONTINUE WHEN v_table.is_part;
        EXECUTE format('CREATE CONSTRAINT TRIGGER iso_commit
            AFTER INSERT OR UPDATE OR DELETE ON tenure.%I DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION iso.before_commit()', v_table.name);
    END LOOP;
    FOR v_routine IN
        SELECT p.oid, p.proname AS name FROM pg_proc p
        JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
        WHERE p.pronamespace = 'tenure'::regnamespace AND p.provolatile = 'v'
            AND p.prorettype <> 'trigger'::regtype
            -- The first statement of each routine, which has its own point.
            AND p.proname NOT IN ('check_isolation', 'ingest_isolation')
    LOOP
        v_text := regexp_replace(pg_get_functiondef(v_routine.oid), E'\\nBEGIN\\n',
            format(E'\\nBEGIN\\n    PERFORM iso.stop(%L);\\n', 'entry of ' || v_routine.name));
        EXECUTE v_text;
        INSERT INTO iso.point VALUES ('entry of ' || v_routine.name);
    END LOOP;
END $$;
";

impl Stop {
    pub(crate) fn point(name: &str) -> Self {
        Self::Point { name: name.to_owned() }
    }

    /// Begins the transaction that stops side A. It ends by [`release`].
    pub(crate) async fn block(&self, client: &Client, tables: &[StateTable]) -> Result<()> {
        client.batch_execute("BEGIN").await?;
        self.lock(client, tables).await
    }

    /// Takes the lock.
    pub(crate) async fn lock(&self, client: &Client, tables: &[StateTable]) -> Result<()> {
        let found = |name: &str| tables.iter().find(|table| table.name == name);
        match self {
            Self::Row { table, label } => {
                let key = found(table).map(StateTable::label).unwrap_or_default();
                let sql = format!("SELECT FROM tenure.{table} x WHERE {key} = $1 FOR UPDATE");
                client.query(&sql, &[label]).await?;
            }
            Self::Insertion { table, row, .. } => {
                let columns = found(table).map(StateTable::stored).unwrap_or_default();
                let sql = format!(
                    "INSERT INTO tenure.{table} ({columns}) SELECT {columns} FROM \
                     jsonb_populate_record(NULL::tenure.{table}, $1::text::jsonb) \
                     ON CONFLICT DO NOTHING"
                );
                client.execute(&sql, &[row]).await?;
            }
            Self::Table { table } => {
                let sql = format!("LOCK TABLE tenure.{table} IN ROW EXCLUSIVE MODE");
                client.batch_execute(&sql).await?;
            }
            Self::Key { key } => {
                client.execute("SELECT pg_advisory_xact_lock($1)", &[key]).await?;
            }
            Self::Point { name } => {
                let sql = "SELECT pg_advisory_xact_lock(7, hashtext($1))";
                client.execute(sql, &[name]).await?;
            }
        }
        Ok(())
    }
}

/// Ends the transaction of the blocker, which changes nothing.
pub(crate) async fn release(client: &Client) -> Result<()> {
    Ok(client.batch_execute("ROLLBACK").await?)
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row { table, label } => write!(f, "row {label} of {table}"),
            Self::Insertion { table, label, .. } => write!(f, "insertion of {label} into {table}"),
            Self::Table { table } => write!(f, "lock of table {table}"),
            Self::Key { key } => write!(f, "advisory lock {key}"),
            Self::Point { name } => write!(f, "{name}"),
        }
    }
}
