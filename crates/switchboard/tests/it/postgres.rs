//! Tests for PostgreSQL only: concurrent connections, rights and poolers.

mod failover;
mod meanwhile;
mod registry;
mod update;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::Code;
use tenure_store::IfAbsent;
use tenure_switchboard::storage::{
    Inbox as _, InboxQuery, Storage, SubmissionOutcome, SubmissionRejection, postgres,
};
use tenure_wire::ingest::InboxCursor;
use testkit::{Pgbouncer, PostgresOptions, PostgresServer};
use tokio::task::JoinSet;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use crate::place::Place;
use crate::storage::kit::{
    by_me, commit_one, event, fence, held, inbox, letter, make_token, positions, read_page, sent,
    stored, with_token,
};
use crate::storage::told::{DAY, MIDNIGHT};

/// Timeout longer than any step of these tests.
const LIMIT: Duration = Duration::from_secs(60);

/// Opens handles, as several replicas would.
async fn replicas(place: &Place, count: usize) -> Vec<Arc<dyn Storage>> {
    let mut replicas = Vec::new();
    for _ in 0..count {
        replicas.push(place.open().await);
    }
    replicas
}

#[tokio::test(flavor = "multi_thread")]
async fn opposite_orders_never_lock_each_other_out() {
    let Some(place) = Place::postgres().await else { return };
    let mut committing = JoinSet::new();
    for (number, storage) in replicas(&place, 2).await.into_iter().enumerate() {
        committing.spawn(async move {
            for round in 0..40 {
                // Half of the keys are new, half exist: both are locked.
                let mut names: Vec<u32> = (round * 10..round * 10 + 20).collect();
                if number == 1 {
                    names.reverse();
                }
                let events = names.iter().map(|name| event(&name.to_string()));
                assert_eq!(stored(&commit_one(&storage, sent(events)).await).len(), 20);
            }
        });
    }
    committing.join_all().await;
    let found = positions(&inbox(&place.storage).await);
    assert_eq!(found, (1..=410).collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_misses_nothing_and_each_key_has_one_id() {
    let Some(place) = Place::postgres().await else { return };
    let mut committing = JoinSet::new();
    for (number, storage) in replicas(&place, 4).await.into_iter().enumerate() {
        committing.spawn(async move {
            let mut ids = Vec::new();
            for round in 0..25_usize {
                let own = event(&format!("{number} {round}"));
                let common = event(&format!("common {round}"));
                let settled = commit_one(&storage, sent([own, common])).await;
                ids.push((round, stored(&settled)[1].request_id));
            }
            ids
        });
    }
    let committing = tokio::spawn(committing.join_all());
    let (mut followed, mut after) = (Vec::new(), InboxCursor::default());
    loop {
        // Read first: the page must show everything committed by then.
        let is_over = committing.is_finished();
        let query = InboxQuery { after, limit: 7, ..InboxQuery::default() };
        let page = read_page(&place.storage, &query).await;
        after = page.next_after;
        followed.extend(positions(&page.messages));
        let dense = followed.len() as i64 == after.position;
        assert!(dense, "something came before what was seen: {after}");
        if is_over && page.at_end {
            break;
        }
    }
    assert_eq!(followed, (1..=4 * 25 + 25).collect::<Vec<i64>>());
    let ids: BTreeSet<_> = committing.await.unwrap().into_iter().flatten().collect();
    assert_eq!(ids.len(), 25, "{ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_refused_for_itself_is_told_apart() {
    let Some(place) = Place::postgres().await else { return };
    let function = "CREATE FUNCTION poisoned() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
        IF new.dedupe_key LIKE ''%poison'' THEN RAISE EXCEPTION ''no''; END IF;
        RETURN new; END'";
    place.execute(function).await;
    let trigger = "CREATE TRIGGER poisoned BEFORE INSERT ON message_inbox
        FOR EACH ROW EXECUTE FUNCTION poisoned()";
    place.execute(trigger).await;
    let group = [sent([event("a")]), sent([event("poison")])];
    let error = place.storage.commit(&group).await.unwrap_err();
    assert!(error.code() == Code::Unstorable && !error.is_unknown(), "{error}");
    assert!(inbox(&place.storage).await.is_empty());
    let mut nul = event("b");
    nul.envelope = "a\0b".to_owned();
    let error = place.storage.commit(&[sent([nul])]).await.unwrap_err();
    assert!(error.code() == Code::Unstorable && !error.is_unknown(), "{error}");
    assert!(!stored(&commit_one(&place.storage, sent([event("a")])).await)[0].duplicate);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_longer_than_an_index_takes() {
    let Some(place) = Place::postgres().await else { return };
    let mut long = event("a");
    // Incompressible text.
    long.endpoint_identity =
        (0..5_000).map(|n: u32| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect();
    let endpoint_identity = Some(long.endpoint_identity.clone());
    commit_one(&place.storage, sent([event("b"), long])).await;
    let query = InboxQuery { limit: 9, endpoint_identity, ..InboxQuery::default() };
    assert_eq!(positions(&read_page(&place.storage, &query).await.messages), [2]);
}

/// A holder that waits while its successor is announced must find the announcement, whatever
/// isolation level the role or database has by default.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_holder_is_fenced_under_any_default_isolation() {
    for level in ["repeatable%5C%20read", "serializable"] {
        let Some(place) = Place::postgres().await else { return };
        let (url, schema) = place.schema();
        let strict = format!("{url}?options=-c%20default_transaction_isolation%3D{level}");
        let stale = postgres::open(&strict, schema, IfAbsent::Refuse).await.unwrap();
        let (client, watcher) = (session(&place).await, client(url).await);
        let turn = "BEGIN; SELECT FROM inbox_position FOR UPDATE";
        client.batch_execute(turn).await.unwrap();
        let late =
            tokio::spawn(
                async move { stale.commit(&[held(fence("bot", 5, "old"), &["a"])]).await },
            );
        until_waiting(&watcher, &format!("{schema}.ingest_commit")).await;
        let announce = "INSERT INTO ingest_fence (duty, epoch, instance, updated_at)
            VALUES ('telegram/bot', 6, 'new', clock_timestamp()); COMMIT";
        client.batch_execute(announce).await.unwrap();
        let settled = late.await.unwrap().unwrap();
        assert!(
            matches!(&settled[..], [SubmissionOutcome::Rejected(SubmissionRejection::Fenced(_))]),
            "{level}: {settled:?}"
        );
    }
}

pub async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Opens a session in the place's schema.
async fn session(place: &Place) -> Client {
    let (url, schema) = place.schema();
    let client = client(url).await;
    client.batch_execute(&format!("SET search_path TO {schema}")).await.unwrap();
    client
}

/// Functions are checked when a migration creates them.
#[tokio::test]
async fn every_statement_fits_the_tables() {
    let Some(place) = Place::postgres().await else { return };
    let ((_, schema), client) = (place.schema(), session(&place).await);
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/src/storage/postgres/sql");
    let mut prepared = 0;
    for folder in std::fs::read_dir(files).unwrap() {
        let folder = folder.unwrap().path();
        if folder.ends_with("routine") {
            continue;
        }
        for file in folder.read_dir().unwrap() {
            let file = file.unwrap().path();
            let sql = std::fs::read_to_string(&file).unwrap();
            let sql = sql.replace("tenure.", &format!("{schema}."));
            // Parameter types are checked last, after every name was resolved.
            let error = client.prepare(&sql).await.err();
            let code = error.as_ref().and_then(tokio_postgres::Error::code);
            let fits = error.is_none() || code == Some(&SqlState::AMBIGUOUS_PARAMETER);
            assert!(fits, "{file:?}: {error:?}");
            prepared += 1;
        }
    }
    assert!(prepared > 50, "{prepared}");
}

/// Waits until a statement of this kind waits for a lock.
async fn until_waiting(client: &Client, needle: &str) {
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'";
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    let look = async {
        while client.query_one(waiting, &[&needle]).await.unwrap().get::<_, i64>(0) == 0 {
            tick.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.expect("nobody waits");
}

/// One private server for all tests that change a server.
#[tokio::test(flavor = "multi_thread")]
async fn poolers_rights_and_encodings() {
    let server = PostgresServer::start(PostgresOptions::default()).unwrap();
    let pooler = Pgbouncer::start(&server).unwrap();
    let open = |url: String| async move { postgres::open(&url, "tenure", IfAbsent::Create).await };

    let bytes = "CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0";
    server.sql(bytes).unwrap();
    let error = open(server.url().replace("/postgres", "/bytes")).await.unwrap_err();
    assert!(error.code() == Code::BadUrl && error.to_string().contains("UTF8"), "{error}");

    // The script is idempotent, and its GRANT statements suffice.
    let script = postgres::script("tenure").unwrap();
    for _ in 0..2 {
        server.sql(&script).unwrap();
    }
    let rights: String = script
        .lines()
        .filter_map(|line| line.strip_prefix("-- "))
        .skip_while(|line| !line.starts_with("GRANT"))
        .collect();
    server.sql("CREATE ROLE role LOGIN PASSWORD 'pass'").unwrap();
    server.sql(&rights).unwrap();
    let (_, place) =
        server.url().split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let storage = open(format!("postgres://role:pass@{place}")).await.unwrap();
    let plain: Arc<dyn Storage> = Arc::new(storage);
    uses_everything(&plain, "plain").await;
    registry::uses_everything(&plain, MIDNIGHT).await;

    let pooled: Arc<dyn Storage> = Arc::new(open(pooler.url()).await.unwrap());
    uses_everything(&pooled, "pooled").await;
    registry::uses_everything(&pooled, MIDNIGHT + 100 * DAY).await;

    // While a session holds the row that every commit locks, commits time out.
    let client = client(&server.url()).await;
    let lock = "BEGIN; SELECT FROM tenure.inbox_position FOR UPDATE";
    client.batch_execute(lock).await.unwrap();
    let waiting = commit_one_error(&pooled);
    let error = tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
    assert!(error.code() == Code::Busy && !error.is_unknown(), "{error}");
    // Reads still work.
    assert!(pooled.last_position().await.unwrap() > 0);
    client.batch_execute("COMMIT").await.unwrap();
    commit_one(&pooled, sent([event("stuck")])).await;
    some_are_not_told_the_timeline(&server, &plain, &pooled).await;
}

/// A role that may no longer read the timeline still commits and starts no incarnation. Commits of
/// a role that may read it detect another server, once.
async fn some_are_not_told_the_timeline(
    server: &PostgresServer,
    untold: &Arc<dyn Storage>,
    told: &Arc<dyn Storage>,
) {
    let jumps = async || told.audit(Some("inbox"), 9).await.unwrap().len();
    let lineage = || server.sql("SELECT lineage FROM tenure.inbox_position").unwrap();
    let (before, known) = (jumps().await, lineage());
    assert!(known.contains('/'), "{known}");
    server.sql("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC").unwrap();
    for (number, storage) in [untold, told, untold].into_iter().enumerate() {
        commit_one(storage, sent([event(&format!("untold {number}"))])).await;
    }
    assert_eq!((jumps().await, lineage()), (before, known.clone()));
    server.sql("UPDATE tenure.inbox_position SET lineage = '1/00000001'").unwrap();
    for (number, jumped) in [(3, 0), (4, 1), (5, 1), (6, 1)] {
        let storage = if number % 2 == 0 { told } else { untold };
        commit_one(storage, sent([event(&format!("untold {number}"))])).await;
        assert_eq!(jumps().await, before + jumped);
    }
    assert_eq!(lineage(), known);
}

async fn commit_one_error(storage: &Arc<dyn Storage>) -> tenure_switchboard::SwitchboardError {
    storage.commit(&[sent([event("stuck")])]).await.unwrap_err()
}

/// Runs every statement once, to check that rights and poolers permit it.
async fn uses_everything(storage: &Arc<dyn Storage>, name: &str) {
    let token = format!("tok_{name}");
    make_token(storage, &token).await;
    for _ in 0..2 {
        let mut submission = with_token(&token, &[name]);
        submission.fence = Some(fence(name, 1, "one"));
        let settled = commit_one(storage, submission).await;
        assert!(matches!(settled, SubmissionOutcome::Stored(_)), "{settled:?}");
    }
    for (epoch, passes) in [(1, true), (0, false)] {
        let settled = commit_one(storage, held(fence(name, epoch, "one"), &["x"])).await;
        assert_eq!(matches!(settled, SubmissionOutcome::Stored(_)), passes, "{settled:?}");
    }
    let letter = letter(name);
    storage.post_letter(&letter, Some(&fence(name, 1, "one")), Some(&token)).await.unwrap();
    assert!(storage.letter(letter.id).await.unwrap().is_some());
    let resolve = tenure_switchboard::storage::LetterResolution {
        id: letter.id,
        state: "discarded",
        decision: by_me("spam"),
        request_id: None,
    };
    storage.resolve_letter(&resolve).await.unwrap().unwrap();
    storage
        .letters(&tenure_switchboard::storage::LetterQuery { limit: 9, ..Default::default() })
        .await
        .unwrap();
    storage.pending_letters().await.unwrap();
    let usage = tenure_switchboard::storage::TokenUsage {
        token_id: token.clone(),
        day: "2026-02-15".to_owned(),
        requests: 1,
        ..Default::default()
    };
    storage.add_usage(&[usage.clone(), usage]).await.unwrap();
    assert_eq!(storage.usage(Some(&token), "2026-02-15").await.unwrap()[0].requests, 2);
    for token_id in [token.as_str(), "nobody"] {
        storage.admit(&crate::storage::kit::attempt(token_id, "127.0.0.1")).await.unwrap();
    }
    assert!(storage.has_tokens().await.unwrap());
    storage.revoke_token(&token, "me", "over").await.unwrap();
    assert_eq!(storage.audit(Some(&token), 9).await.unwrap().len(), 2);
    let message = inbox(storage).await.pop().unwrap();
    storage.message(message.request_id).await.unwrap();
    let was = storage.reset_fence(&format!("telegram/{name}"), None, &by_me("wrong")).await;
    assert_eq!(was.unwrap().unwrap().len(), 2, "with the token, and without one");
    storage
        .prune(tenure_switchboard::storage::InboxRetention { bodies: i64::MAX, keys: i64::MAX })
        .await
        .unwrap();
    storage.adopt("me").await.unwrap();
    storage.ping().await.unwrap();
}
