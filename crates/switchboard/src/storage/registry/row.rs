//! Rows of connectors, their instances and their history.
//!
//! Counters and labels that have no column of their own are in the JSON object of the column
//! `more`: a new one needs neither a column nor a statement.
//!
//! Why: docs/decisions/0046-heartbeat-fields-are-lists.md

use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};
use tenure_core::{Code, StoreError};
use tenure_wire::heartbeat::{COUNTER_NAMES, Counters, LABEL_NAMES, Labels};

use super::heartbeat::{HeartbeatChanges, InstanceRow};
use super::{Connector, ConnectorInstance, HistoryEntry, Measures};
use crate::storage::row::{DatabaseRow, FieldColumns, RowReader, StoredField, from_row};

const COUNTER_PREFIX: &str = "counter_";
const DELTA_PREFIX: &str = "delta_";
const OWED_PREFIX: &str = "owed_";

impl<R: DatabaseRow> RowReader<'_, R> {
    /// Reads `more`, which comes before labels and counters.
    fn more(&mut self) -> Result<&mut Self, R::Error> {
        let more: Option<String> = self.get()?;
        let read = more.map(|more| serde_json::from_str(&more)).transpose();
        self.more = read.map_err(|error| self.damaged(error))?.unwrap_or_default();
        Ok(self)
    }

    /// Returns a member of `more`; a missing one is empty or 0.
    fn member<'de, T: Deserialize<'de> + Default>(&'de self, name: &str) -> Result<T, R::Error> {
        let member = self.more.get(name).map(T::deserialize).transpose();
        Ok(member.map_err(|error| self.damaged(error))?.unwrap_or_default())
    }

    fn damaged(&self, error: serde_json::Error) -> R::Error {
        self.invalid(StoreError::refused(Code::Damaged, format!("column \"more\": {error}")))
    }

    fn labels(&mut self) -> Result<Labels, R::Error> {
        let mut labels = Labels::default();
        for (index, label) in labels.fields_mut().into_iter().enumerate() {
            *label = match index < self.columns.labels {
                true => self.get()?,
                false => self.member(LABEL_NAMES[index])?,
            };
        }
        Ok(labels)
    }

    fn counters(&mut self, prefix: &str) -> Result<Counters, R::Error> {
        let mut counters = Counters::default();
        for (index, counter) in counters.fields_mut().into_iter().enumerate() {
            *counter = match index < self.columns.counters {
                true => self.get()?,
                false => self.member(&format!("{prefix}{}", COUNTER_NAMES[index]))?,
            };
        }
        Ok(counters)
    }
}

from_row! { Connector, |row|
    connector_type, endpoint_identity, instance_id, state, error_message, uptime_s,
    last_heartbeat_at, first_seen_at, registered_via, checkpoint_cursor, checkpoint_updated_at,
    archived_at, interval, drift, labels = row.more()?.labels()?,
    counters = row.counters(COUNTER_PREFIX)?, today = Measures::default(),
    more = std::mem::take(&mut row.more),
}
from_row! { ConnectorInstance, |row|
    instance_id, state, error_message, uptime_s, started_at, first_seen_at, last_heartbeat_at,
    stopped_at, checkpoint_cursor, checkpoint_updated_at, capabilities, interval, drift, beats,
    late, resets, jumps, labels = row.more()?.labels()?, counters = row.counters(COUNTER_PREFIX)?,
}
from_row! { InstanceRow, |row|
    instance, last_sent_at, owed = row.counters(OWED_PREFIX)?, more = std::mem::take(&mut row.more),
}
from_row! { HistoryEntry, |row|
    id, instance_id, state, error_message, uptime_s, late, received_at, sent_at,
    counters = row.more()?.counters(COUNTER_PREFIX)?, deltas = row.counters(DELTA_PREFIX)?,
}

/// Adds the counts of today to a connector.
pub(in crate::storage) fn with_today((connector, today): (Connector, Measures)) -> Connector {
    Connector { today, ..connector }
}

/// The name of a column. Those of counters have a prefix.
#[derive(Clone, Copy, Debug)]
pub(in crate::storage) struct ColumnName {
    prefix: &'static str,
    field: &'static str,
}

impl ColumnName {
    /// Returns whether the column contains a time.
    pub(in crate::storage) fn is_timestamp(self) -> bool {
        self.field.ends_with("_at")
    }
}

impl fmt::Display for ColumnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix, self.field)
    }
}

/// The columns of a row to be stored, by name.
#[derive(Debug, Default)]
pub(in crate::storage) struct StoredRow<'a> {
    columns: Vec<(ColumnName, StoredField<'a>)>,
    /// Initially the members that were read; this version may not know all of them.
    more: Map<String, Value>,
    with_columns: FieldColumns,
}

/// Lists fields of a record by the names of their columns: `field` or `column = field`.
macro_rules! columns {
    ($record:expr, $($column:ident $(= $field:ident)?),* $(,)?) => {
        [$((stringify!($column), columns!(@ $record, $column $(, $field)?)),)*]
    };
    (@ $record:expr, $column:ident) => { StoredField::from(&$record.$column) };
    (@ $record:expr, $column:ident, $field:ident) => { StoredField::from(&$record.$field) };
}

impl<'a> StoredRow<'a> {
    fn with(mut self, columns: impl IntoIterator<Item = (&'static str, StoredField<'a>)>) -> Self {
        let named = |(field, value)| (ColumnName { prefix: "", field }, value);
        self.columns.extend(columns.into_iter().map(named));
        self
    }

    fn with_more(self, more: &Map<String, Value>) -> Self {
        Self { more: more.clone(), ..self }
    }

    fn labels(mut self, labels: &'a Labels) -> Self {
        for (index, (field, label)) in LABEL_NAMES.into_iter().zip(labels.fields()).enumerate() {
            match index < self.with_columns.labels {
                true => self.columns.push((ColumnName { prefix: "", field }, label.into())),
                false => drop(self.more.insert(field.to_owned(), label.clone().into())),
            }
        }
        self
    }

    fn counters(mut self, prefix: &'static str, counters: &'a Counters) -> Self {
        for (index, (field, count)) in COUNTER_NAMES.into_iter().zip(counters.fields()).enumerate()
        {
            let name = ColumnName { prefix, field };
            match index < self.with_columns.counters {
                true => self.columns.push((name, count.into())),
                false => drop(self.more.insert(name.to_string(), (*count).into())),
            }
        }
        self
    }

    /// Calls a function with each column.
    pub(in crate::storage) fn each<E>(
        &self,
        mut f: impl FnMut(ColumnName, &StoredField<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let more = (!self.more.is_empty()).then(|| Value::from(self.more.clone()).to_string());
        f(ColumnName { prefix: "", field: "more" }, &StoredField::from(&more))?;
        self.columns.iter().try_for_each(|(name, value)| f(*name, value))
    }
}

impl HeartbeatChanges<'_> {
    /// Returns the name of the connector.
    fn key(&self) -> StoredRow<'_> {
        StoredRow::default().with(columns! { self.heartbeat, connector_type, endpoint_identity })
    }

    /// Returns the row of `connector_instances`.
    pub(in crate::storage) fn instance_row(&self) -> StoredRow<'_> {
        let InstanceRow { instance, last_sent_at, owed, more } = &self.instance;
        self.key()
            .with_more(more)
            .with(columns! {
                instance, instance_id, state, error_message, uptime_s, started_at, first_seen_at,
                last_heartbeat_at, stopped_at, checkpoint_cursor, checkpoint_updated_at,
                capabilities, interval_micros = interval, drift_micros = drift, beats, late, resets,
                jumps,
            })
            .with([("last_sent_at", last_sent_at.into())])
            .labels(&instance.labels)
            .counters(COUNTER_PREFIX, &instance.counters)
            .counters(OWED_PREFIX, owed)
    }

    /// Returns the columns of the instance that [`Self::owe_deltas`] changes.
    pub(in crate::storage) fn owed_columns(&self) -> StoredRow<'_> {
        let mut row = self.instance_row();
        row.columns.retain(|(name, _)| name.prefix == OWED_PREFIX);
        row
    }

    /// Returns the row of `connector_registry`, as far as heartbeats change it.
    pub(in crate::storage) fn connector_row(&self) -> Option<StoredRow<'_>> {
        let connector = self.connector.as_ref()?;
        let row = self.key().with_more(&connector.more).with(columns! {
            connector, instance_id, state, error_message, uptime_s, last_heartbeat_at,
            checkpoint_cursor, checkpoint_updated_at, interval_micros = interval,
            drift_micros = drift,
        });
        Some(row.labels(&connector.labels).counters(COUNTER_PREFIX, &connector.counters))
    }

    /// Returns the row of `connector_heartbeat_log`.
    pub(in crate::storage) fn history_row(&self) -> StoredRow<'_> {
        let heartbeat = self.heartbeat;
        self.key()
            .with(columns! {
                heartbeat, instance_id, error_message, uptime_s, sent_at = sent_at_micros,
            })
            .with(columns! { self.taken, late, received_at })
            .with([("state", StoredField::Text(Some(heartbeat.state.as_str())))])
            .counters(COUNTER_PREFIX, &heartbeat.counters)
            .counters(DELTA_PREFIX, &self.deltas)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;
    use serde_json::json;

    use super::*;

    /// All but one label and two counters have columns.
    const FEWER: FieldColumns =
        FieldColumns { labels: LABEL_NAMES.len() - 1, counters: COUNTER_NAMES.len() - 2 };

    fn fields() -> (Labels, Counters, Counters) {
        let mut labels = Labels::default();
        for label in labels.fields_mut() {
            *label = Some("1.2".to_owned());
        }
        let mut numbers = 1..;
        let mut next = || Counters::default().map(|_: i64| numbers.next().unwrap());
        (labels, next(), next())
    }

    /// Selects the columns of a row as SQLite would return them.
    fn select<T>(
        row: &StoredRow<'_>,
        read: impl FnOnce(&mut RowReader<'_, rusqlite::Row<'_>>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let db = Connection::open_in_memory().unwrap();
        let columns = vec!["?"; row.columns.len() + 1].join(", ");
        let mut statement = db.prepare(&format!("SELECT {columns}")).unwrap();
        let mut index = 0;
        row.each(|_, value| {
            index += 1;
            statement.raw_bind_parameter(index, value)
        })?;
        let mut rows = statement.raw_query();
        let mut reader = RowReader::from(rows.next()?.unwrap(), 0);
        reader.columns = row.with_columns;
        read(&mut reader)
    }

    #[test]
    fn fields_without_a_column_are_in_more() {
        let (labels, counters, owed) = fields();
        let row = StoredRow { with_columns: FEWER, ..StoredRow::default() };
        let row =
            row.labels(&labels).counters(COUNTER_PREFIX, &counters).counters(OWED_PREFIX, &owed);
        assert_eq!(row.columns.len(), FEWER.labels + 2 * FEWER.counters);
        let more = json!({
            "version": "1.2", "counter_checkpoint_saves": 4, "counter_dedupe_accepted": 5,
            "owed_checkpoint_saves": 9, "owed_dedupe_accepted": 10,
        });
        assert_eq!(Value::from(row.more.clone()), more);
        let read = select(&row, |reader| {
            Ok((
                reader.more()?.labels()?,
                reader.counters(COUNTER_PREFIX)?,
                reader.counters(OWED_PREFIX)?,
            ))
        });
        assert_eq!(read.unwrap(), (labels, counters, owed));
    }

    #[test]
    fn a_member_of_another_type_is_damage() {
        let (labels, counters, _) = fields();
        for (name, value) in [("version", json!(1)), ("counter_dedupe_accepted", json!("1"))] {
            let row = StoredRow { with_columns: FEWER, ..StoredRow::default() };
            let mut row = row.labels(&labels).counters(COUNTER_PREFIX, &counters);
            row.more.insert(name.to_owned(), value);
            let read = select(&row, |it| Ok((it.more()?.labels()?, it.counters(COUNTER_PREFIX)?)));
            assert!(read.unwrap_err().to_string().contains("more"), "{name}");
        }
    }
}
