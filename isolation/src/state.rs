//! The rows of the tables: saved, read, and put back.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio_postgres::{Client, Statement};

/// Statement over a table's columns, as the server's catalog has them.
const COLUMNS: &str = "SELECT c.relname::text, a.attname::text, a.atttypid::regtype::text,
        a.attnum = ANY (coalesce(i.indkey::smallint[], '{}')), a.attgenerated = '',
        a.attidentity <> ''
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
    WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p')
        AND NOT c.relispartition AND c.relname NOT LIKE '%migration'
    ORDER BY c.relname, a.attnum";

/// A table of the schema.
#[derive(Clone, Debug)]
pub(crate) struct StateTable {
    pub(crate) name: String,
    columns: Vec<Column>,
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    kind: String,
    in_key: bool,
    is_stored: bool,
    is_identity: bool,
}

/// Rows by table as they are, times in microseconds.
pub(crate) type Rows = BTreeMap<String, Vec<Value>>;

/// The rows at one moment.
#[derive(Clone, Debug)]
pub(crate) struct RowSnapshot {
    /// The server's clock in microseconds.
    pub(crate) now: i64,
    pub(crate) rows: Rows,
}

impl StateTable {
    /// Reads the tables of the schema.
    pub(crate) async fn all(client: &Client) -> Result<Vec<Self>> {
        let mut tables: Vec<Self> = Vec::new();
        for row in client.query(COLUMNS, &[]).await? {
            let name: String = row.get(0);
            let column = Column {
                name: row.get(1),
                kind: row.get(2),
                in_key: row.get(3),
                is_stored: row.get(4),
                is_identity: row.get(5),
            };
            match tables.last_mut().filter(|table| table.name == name) {
                Some(table) => table.columns.push(column),
                None => tables.push(Self { name, columns: vec![column] }),
            }
        }
        Ok(tables)
    }

    /// Returns an expression for the row `x` that names it: its key, parts separated by slashes.
    pub(crate) fn label(&self) -> String {
        let parts: Vec<String> =
            self.columns.iter().filter(|it| it.in_key).map(|it| text_of(it, "x")).collect();
        format!("concat_ws('/', {})", parts.join(", "))
    }

    /// Whether its keys are numbers that the server assigns.
    pub(crate) fn is_numbered(&self) -> bool {
        self.columns.iter().any(|it| it.in_key && it.is_identity)
    }

    /// Returns the columns that a row is written with.
    pub(crate) fn stored(&self) -> String {
        let names = self.columns.iter().filter(|it| it.is_stored).map(|it| it.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    }

    fn read(&self) -> String {
        let fields = self.columns.iter().filter(|it| it.is_stored).map(|it| {
            let value = match it.kind.as_str() {
                "timestamp with time zone" => {
                    format!("'@' || (extract(epoch FROM x.{}) * 1000000)::bigint", it.name)
                }
                _ => format!("x.{}", it.name),
            };
            format!("'{}', {value}", it.name)
        });
        let fields = fields.collect::<Vec<_>>().join(", ");
        let Self { name, .. } = self;
        format!(
            "'{name}', (SELECT coalesce(jsonb_agg(jsonb_build_object({fields})), '[]') \
             FROM tenure.{name} x)"
        )
    }
}

fn text_of(column: &Column, row: &str) -> String {
    match column.kind.as_str() {
        "bytea" => format!("left(encode({row}.{}, 'hex'), 12)", column.name),
        _ => format!("{row}.{}::text", column.name),
    }
}

/// Copies the rows of all tables, so that [`reset`] can put them back.
pub(crate) async fn save(client: &Client) -> Result<()> {
    let mut script = "CREATE SCHEMA saved;".to_owned();
    for StateTable { name, .. } in StateTable::all(client).await? {
        script.push_str(&format!("CREATE TABLE saved.{name} AS SELECT * FROM tenure.{name};"));
    }
    script.push_str(
        "CREATE TABLE saved.sequences AS SELECT sequencename::text AS name, last_value
         FROM pg_sequences WHERE schemaname = 'tenure'",
    );
    Ok(client.batch_execute(&script).await?)
}

/// Puts back the saved rows of these tables, and the sequences.
pub(crate) async fn reset(client: &Client, tables: &[&StateTable]) -> Result<()> {
    let mut script = "SELECT setval('tenure.' || name, coalesce(last_value, 1), \
         last_value IS NOT NULL) FROM saved.sequences;"
        .to_owned();
    for table in tables {
        let (name, columns) = (&table.name, table.stored());
        script.push_str(&format!(
            "DELETE FROM tenure.{name}; INSERT INTO tenure.{name} ({columns}) \
             OVERRIDING SYSTEM VALUE SELECT {columns} FROM saved.{name};"
        ));
    }
    Ok(client.batch_execute(&script).await?)
}

/// Reads all rows of some tables.
pub(crate) struct StateReader(Statement);

impl StateReader {
    pub(crate) async fn new(client: &Client, tables: &[&StateTable]) -> Result<Self> {
        let parts: Vec<String> = tables.iter().map(|table| table.read()).collect();
        let sql = format!(
            "SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint, \
             jsonb_build_object({})::text",
            parts.join(", ")
        );
        Ok(Self(client.prepare(&sql).await?))
    }

    pub(crate) async fn read(&self, client: &Client) -> Result<RowSnapshot> {
        let row = client.query_one(&self.0, &[]).await?;
        let text: &str = row.get(1);
        let value: Value = serde_json::from_str(text)?;
        let tables = value.as_object().context("not an object")?;
        let rows = tables
            .iter()
            .map(|(name, rows)| (name.clone(), rows.as_array().cloned().unwrap_or_default()));
        Ok(RowSnapshot { now: row.get(0), rows: rows.collect() })
    }
}
