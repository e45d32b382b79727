//! New connections: only to a primary, and with a time limit.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use tenure_core::store::Committed;
use tenure_core::{Code, GroupName, StoreError};
use testkit::{PostgresOptions, PostgresServer};

use super::Place;
use crate::player::{LONG, Player, or_hang};

/// Enough calls to replace every connection of the pools.
const CALLS: usize = 20;

fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

/// After the primary's death, its standby is used only once it was promoted.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_not_asked_before_it_is_the_primary() {
    let primary = PostgresServer::start(PostgresOptions::default()).unwrap();
    let standby = PostgresServer::standby_of(&primary).unwrap();
    let both = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), standby.port());
    let url = primary.url().replace(&format!("127.0.0.1:{}", primary.port()), &both);
    let store = Place::on(url).open().await;
    let a = Player::join(&store, "a", LONG).await;
    let hold = a.hold("d").await;
    assert!(matches!(a.commit(&hold, 0, "cursor").await, Committed::Saved(_)));
    let caught_up = || {
        let behind = "select count(*) from pg_stat_replication
                      where replay_lsn is distinct from pg_current_wal_lsn()";
        primary.sql(behind).is_ok_and(|count| count == "0")
    };
    testkit::wait_until("the standby has it all", Duration::from_secs(30), caught_up).unwrap();
    primary.kill().unwrap();

    let mut last = None;
    for _ in 0..CALLS {
        // The standby could answer a read as well, which must not happen.
        last = Some(store.holders(&group()).await.unwrap_err());
        a.try_commit(&hold, 1, "to a standby").await.unwrap_err();
        store.keep_alive(&a.session, None, &[]).await.unwrap_err();
    }
    let error = last.unwrap();
    assert!(matches!(&error, StoreError::Refused(_)), "{error}");
    assert_eq!(error.code(), Code::ReadOnly, "{error}");

    standby.promote().unwrap();
    assert!(matches!(a.commit(&hold, 1, "to the new primary").await, Committed::Saved(_)));
    assert!(a.keeps(&hold).await);
    assert_eq!(store.holders(&group()).await.unwrap().len(), 1);
}

/// The same server comes back read-only.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_was_demoted_is_asked_no_more() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let store = Place::on(server.url()).open().await;
    let a = Player::join(&store, "a", LONG).await;
    let read_only = |on: &str| {
        let sql = format!("alter system set default_transaction_read_only = {on}");
        server.sql(&sql).unwrap();
        server.sql("select pg_reload_conf()").unwrap();
        let is_on = || server.sql("show transaction_read_only").is_ok_and(|now| now == on);
        testkit::wait_until("the setting is read", Duration::from_secs(30), is_on).unwrap();
        // Closes the open connections, which were made while the server was a primary.
        let ours = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                    where application_name = 'tenure'";
        server.sql(ours).unwrap();
    };
    read_only("on");
    let mut codes = Vec::new();
    for _ in 0..CALLS {
        codes.push(store.members(&group()).await.unwrap_err().code());
        store.keep_alive(&a.session, None, &[]).await.unwrap_err();
    }
    assert_eq!(codes.last(), Some(&Code::ReadOnly), "{codes:?}");
    read_only("off");
    assert_eq!(store.members(&group()).await.unwrap().len(), 1);
}

/// Accepts connections, answers with these bytes, and then stays silent.
fn silent(answer: &'static [u8]) -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let taking = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in taking.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 8];
            if stream.read_exact(&mut request).is_ok() && stream.write_all(answer).is_ok() {
                open.push(stream);
            }
        }
    });
    (listener, port)
}

/// Silence before the first byte, and in the middle of a handshake.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_connections_and_never_answers_is_given_up() {
    let open = async |answer: &'static [u8], mode: &str| {
        let (_listener, port) = silent(answer);
        let url = format!("postgres://me:s3cret@127.0.0.1:{port}/db?sslmode={mode}");
        let error = or_hang(Place::on(url).try_open()).await.unwrap_err();
        assert!(matches!(&error, StoreError::Refused(_)), "{mode}: {error}");
        assert_eq!(error.code(), Code::Unreachable, "{mode}: {error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    };
    let encrypted = if cfg!(feature = "tls") { "require" } else { "prefer" };
    tokio::join!(open(b"", "disable"), open(b"", "prefer"), open(b"S", encrypted));
}

/// A frozen server: neither a call nor a new listener waits for it forever.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_is_given_up() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let store = Place::on(server.url()).open().await;
    let a = Player::join(&store, "a", LONG).await;
    server.pause().unwrap();
    let group = group();
    let (watched, claimed) = tokio::join!(or_hang(store.watch(&group)), or_hang(a.try_claim("d")));
    let error = watched.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(_)), "{error}");
    assert_eq!(error.code(), Code::Unreachable, "{error}");
    // The claim was sent on an older connection.
    let error = claimed.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    server.resume().unwrap();
    or_hang(store.watch(&group)).await.unwrap();
    assert_eq!(store.members(&group).await.unwrap().len(), 1);
}
