//! Lists in SQLite.

use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_targets::TargetsUrl;

use crate::{MOST, listed, refused, too_many};

struct File {
    folder: TempDir,
    connection: Connection,
}

impl File {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let connection = Connection::open(folder.path().join("t.db")).unwrap();
        let make = "CREATE TABLE t (id, zone TEXT, paused INTEGER);
                    INSERT INTO t VALUES ('b', 'eu', 1), ('a', NULL, 0), (7, NULL, NULL)";
        connection.execute_batch(make).unwrap();
        Self { folder, connection }
    }

    fn url(&self, query: &str) -> String {
        format!("sqlite:{}/t.db?query={query}", self.folder.path().display())
    }
}

const SERIES: &str = "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s";

#[tokio::test]
async fn each_row_is_a_target() {
    let file = File::new();
    let all = file.url("SELECT * FROM t");
    assert_eq!(listed(&all).await, ["7", "a", "b@eu!"]);
    assert_eq!(listed(&file.url("SELECT id FROM t WHERE id LIKE '%25b%25'")).await, ["b"]);
    assert_eq!(listed(&file.url("SELECT id FROM t WHERE 0")).await, [""; 0]);
    file.connection.execute_batch("DELETE FROM t WHERE id = 'a'").unwrap();
    assert_eq!(listed(&all).await, ["7", "b@eu!"]);
    too_many(&file.url(&format!("{SERIES} LIMIT 1000000) SELECT n FROM s")), MOST).await;
}

#[tokio::test]
async fn what_is_no_list_is_an_error() {
    let file = File::new();
    for (query, says) in [
        ("SELECT id, zone AS area FROM t", "\"area\" is none of zone, paused, every and timeout"),
        ("SELECT NULL", "entry 1: its id is neither"),
        ("SELECT 1.5", "entry 1: its id is neither"),
        ("SELECT ''", "entry 1: a duty id is empty"),
        ("SELECT 'a', 'yes' AS paused", "entry 1: its column paused is neither 0 nor 1"),
        ("SELECT 'a', 5 AS zone", "entry 1: its zone"),
        ("SELECT id FROM absent", "no such table"),
        ("SELECT 1; SELECT 2", "Multiple statements"),
        ("DELETE FROM t RETURNING id", "not read-only"),
        ("", "no columns"),
    ] {
        refused(&file.url(query), says).await;
    }
    assert_eq!(listed(&file.url("SELECT id FROM t")).await.len(), 3);
    refused("sqlite:absent/t.db?query=SELECT 1", "unable to open").await;
}

/// The query's thread ends as well: otherwise this test would not end.
#[tokio::test]
async fn a_query_without_end_is_given_up() {
    let file = File::new();
    let url = file.url(&format!("{SERIES}) SELECT max(n) FROM s"));
    let limit = Duration::from_millis(200);
    let targets = TargetsUrl::parse(&url).unwrap().with_timeout(limit).open();
    let error = targets.list(9).await.unwrap_err();
    assert!(error.to_string().contains("took longer than 200ms"), "{error}");
}
