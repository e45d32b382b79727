//! Lists in PostgreSQL.

use std::sync::LazyLock;
use std::time::Duration;

use tenure_core::Code;
use tenure_targets::TargetsUrl;
use testkit::{PostgresOptions, PostgresServer};

use crate::{MOST, listed, refused, too_many};

/// One server for all tests, because starting one takes seconds.
static SERVER: LazyLock<PostgresServer> =
    LazyLock::new(|| PostgresServer::start(PostgresOptions::default()).unwrap());

fn url(query: &str) -> String {
    format!("{}?query={}", SERVER.url(), query.replace('%', "%25"))
}

#[tokio::test]
async fn each_row_is_a_target() {
    for (query, expected) in [
        ("SELECT * FROM (VALUES ('b'), ('a'), ('b')) AS t", &["a", "b"][..]),
        ("SELECT generate_series(1, 3)", &["1", "2", "3"]),
        ("SELECT 9::int8", &["9"]),
        ("SELECT 9::int2", &["9"]),
        (
            "SELECT '6F9619FF-8B86-d011-b42d-00c04fc964ff'::uuid",
            &["6f9619ff-8b86-d011-b42d-00c04fc964ff"],
        ),
        ("SELECT 'a'::varchar AS paused, true AS paused, 'eu' AS \"Zone\"", &["a@eu!"]),
        ("SELECT 'a', NULL::bool AS paused, NULL::text AS zone", &["a"]),
        ("SELECT 'a' WHERE false", &[]),
        ("SELECT 'x' WHERE 'abc' LIKE '%b%';", &["x"]),
    ] {
        assert_eq!(listed(&url(query)).await, expected, "{query}");
    }
}

#[tokio::test]
async fn more_rows_than_one_answer_has_are_all_read() {
    assert_eq!(listed(&url("SELECT generate_series(1, 2000)")).await.len(), 2000);
    assert_eq!(listed(&url("SELECT generate_series(1, 2001)")).await.len(), 2001);
    too_many(&url("SELECT generate_series(1, 1000000)"), MOST).await;
    too_many(&url("SELECT 'a' FROM generate_series(1, 3)"), 2).await;
}

#[tokio::test]
async fn what_is_no_list_is_an_error() {
    SERVER.sql("CREATE TABLE IF NOT EXISTS kept (id text)").unwrap();
    for (query, says) in [
        ("SELECT", "no columns"),
        ("SELECT 1.5::float8", "entry 1: its id must be text, a whole number or a UUID"),
        ("SELECT NULL::text", "entry 1: its id is NULL"),
        ("SELECT '' FROM generate_series(1, 1)", "entry 1: a duty id is empty"),
        (
            "SELECT 'a', true AS is_paused",
            "\"is_paused\" is none of zone, paused, every and timeout",
        ),
        ("SELECT 'a', 1 AS paused", "entry 1: its column paused must be boolean"),
        ("SELECT id FROM absent", "does not exist"),
        ("SELEKT", "syntax error"),
        ("SELECT 'a'; SELECT 'b'", "multiple commands"),
        ("INSERT INTO kept VALUES ('x') RETURNING id", "read-only transaction"),
        // The first rows are valid; a later error does not yield a shorter list.
        ("SELECT (10 / (3000 - n))::text FROM generate_series(1, 4000) AS n", "division by zero"),
    ] {
        refused(&url(query), says).await;
    }
    let nobody = SERVER.url_without_password().replace("@127", ":s3cret@127");
    refused(&format!("{nobody}?query=SELECT 1"), "password").await;
    assert_eq!(SERVER.sql("SELECT count(*) FROM kept").unwrap().trim(), "0");
}

/// The server also stops: it does not continue an endless query.
#[tokio::test]
async fn a_query_without_end_is_given_up() {
    let limit = Duration::from_millis(300);
    let url = url("SELECT 'nightly' FROM pg_sleep(600)");
    let targets = TargetsUrl::parse(&url).unwrap().with_timeout(limit).open();
    let error = targets.list(9).await.unwrap_err();
    assert_eq!(error.code(), Code::BadTargets);
    let running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%nightl_%' \
                   AND state = 'active' AND pid <> pg_backend_pid()";
    testkit::wait_until("the server gives the query up", Duration::from_secs(10), || {
        SERVER.sql(running).unwrap().trim() == "0"
    })
    .unwrap();
}
