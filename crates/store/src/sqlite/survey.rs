//! Facts about the file and its file system.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rusqlite::Connection;
use tenure_core::StoreResult;
use tenure_core::guarantee::{Fact, Survey};

use super::Sqlite;
use crate::filesystem;

impl Sqlite {
    /// Reads the settings of the connection that grants, because those are the ones that count.
    pub(super) async fn store_survey(&self) -> StoreResult<Survey> {
        let path = self.path.clone();
        self.vital.run(move |worker| Ok(survey(&worker.connection, &path))).await
    }
}

fn survey(connection: &Connection, path: &Path) -> Survey {
    let mode = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).ok();
    let synchronous = connection.pragma_query_value(None, "synchronous", |row| row.get(0)).ok();
    let free = filesystem::free_bytes(path).map(|bytes| bytes.to_string());
    let file_mode = std::fs::metadata(path).ok().map(|file| format!("{:04o}", file.mode() & 0o777));
    let facts = [
        ("journal_mode", mode),
        ("synchronous", synchronous.map(synchronous_word)),
        ("filesystem", filesystem::kind(path)),
        ("free_bytes", free),
        ("file_mode", file_mode),
    ];
    let facts = facts.into_iter().map(|(setting, value)| Fact { setting, value });
    Survey { backend: "sqlite", facts: facts.collect(), unix_ms: None }
}

/// Names the number that the pragma returns.
fn synchronous_word(number: i64) -> String {
    match number {
        0 => "off".to_owned(),
        1 => "normal".to_owned(),
        2 => "full".to_owned(),
        3 => "extra".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings are read from the connection, not known beforehand.
    #[test]
    fn a_connection_that_is_less_careful_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let connection = Connection::open(&path).unwrap();
        let values = || {
            let survey = survey(&connection, &path);
            let value = |n: usize| survey.facts[n].value.clone().unwrap();
            (value(0), value(1))
        };
        assert_eq!(values(), ("delete".to_owned(), "full".to_owned()));
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        for word in ["off", "normal", "full", "extra"] {
            connection.pragma_update(None, "synchronous", word).unwrap();
            assert_eq!(values(), ("wal".to_owned(), word.to_owned()));
        }
    }
}
