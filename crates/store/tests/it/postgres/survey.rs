//! Which servers the survey counts as standbys, and its errors.

use std::time::Duration;

use tenure_core::Code;
use testkit::{PostgresOptions, PostgresServer};

use super::Place;

fn is_gone(code: Code) -> bool {
    matches!(code, Code::Lost | Code::Unreachable)
}

/// A server that does not answer is an error, not a store with unreadable settings.
#[tokio::test(flavor = "multi_thread")]
async fn a_survey_of_a_dead_server_is_an_error() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let store = Place::on(server.url()).open().await;
    store.survey().await.unwrap();
    server.kill().unwrap();
    for _ in 0..3 {
        let error = store.survey().await.unwrap_err();
        assert!(is_gone(error.code()), "{error}");
    }
}

/// A logical subscriber receives rows, but is never promoted.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_is_no_standby() {
    let settings = vec![("wal_level".to_owned(), "logical".to_owned())];
    let server = PostgresServer::start(PostgresOptions { settings, ..Default::default() }).unwrap();
    let subscriber = PostgresServer::start(PostgresOptions::default()).unwrap();
    let store = Place::on(server.url()).open().await;
    server.sql("CREATE PUBLICATION p").unwrap();
    let subscribe = format!("CREATE SUBSCRIPTION s CONNECTION '{}' PUBLICATION p", server.url());
    subscriber.sql(&subscribe).unwrap();
    let streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    let subscribed = || server.sql(streaming).unwrap().trim() == "1";
    testkit::wait_until("the subscriber is there", Duration::from_secs(30), subscribed).unwrap();
    let survey = store.survey().await.unwrap();
    let standbys = survey.facts.iter().find(|fact| fact.setting == "standbys").unwrap();
    assert_eq!(standbys.value.as_deref(), Some("none"));
}
