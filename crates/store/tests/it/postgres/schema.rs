//! Migrations, permissions, and statements that the server can prepare.

use tenure_core::store::{Adopt, Forgotten, Retention};
use tenure_core::{Code, Epoch, StoreError};
use tenure_store::postgres::{Postgres, PostgresSettings};
use tenure_store::{IfAbsent, StoreUrl};

use super::Place;
use crate::player::{LONG, Player, or_hang, reason, sql_files, unique};

fn refused(error: &StoreError, code: Code) {
    assert!(matches!(error, StoreError::Refused(_)), "{error}");
    assert_eq!(error.code(), code, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_start_at_once_on_an_empty_database() {
    let Some(place) = Place::given() else { return };
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let place = place.clone();
        starting.spawn(async move { place.try_open().await });
    }
    for opened in or_hang(starting.join_all()).await {
        opened.unwrap();
    }
    let count = place.sql("SELECT count(*), max(number) FROM tenure.migration");
    let row = place.client().await.query_one(&count, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (7, 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_breaking_schema_is_refused_and_a_harmless_one_is_not() {
    let Some(place) = Place::given() else { return };
    drop(place.open().await);
    let client = place.client().await;
    let later = place.sql("INSERT INTO tenure.migration VALUES (9001, 'later', '')");
    client.batch_execute(&later).await.unwrap();
    drop(place.open().await);
    let breaking = place.sql("INSERT INTO tenure.migration VALUES (9002, 'signed', 'signatures')");
    client.batch_execute(&breaking).await.unwrap();
    refused(&place.try_open().await.unwrap_err(), Code::NewerSchema);
}

/// A newer version migrates the schema while this one waits for the lock to do so.
#[tokio::test(flavor = "multi_thread")]
async fn a_breaking_schema_that_appears_during_the_wait_for_the_lock_is_refused() {
    let Some(place) = Place::given() else { return };
    drop(place.open().await);
    let (newer, observer) = (place.client().await, place.client().await);
    let key = format!("hashtextextended('tenure migration ' || '{}', 0)", place.schema);
    let missing = place.sql("DELETE FROM tenure.migration WHERE number > 4");
    newer.batch_execute(&missing).await.unwrap();
    newer.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({key})")).await.unwrap();

    let opening = tokio::spawn({
        let place = place.clone();
        async move { place.try_open().await }
    });
    let waiting = format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
         AND (classid::bigint << 32 | objid::bigint) = {key}"
    );
    or_hang(async {
        while observer.query_one(&waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let breaking = "INSERT INTO tenure.migration VALUES (9002, 'signed', 'signatures'); COMMIT";
    newer.batch_execute(&place.sql(breaking)).await.unwrap();
    refused(&or_hang(opening).await.unwrap().unwrap_err(), Code::NewerSchema);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_an_empty_database_makes_nothing() {
    let Some(place) = Place::given() else { return };
    let settings = PostgresSettings { if_absent: IfAbsent::Refuse, ..place.settings() };
    refused(&Postgres::open(settings).await.unwrap_err(), Code::Absent);
    let there = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
    let row = place.client().await.query_one(there, &[&place.schema]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
}

/// A role that may not create anything is refused with a hint, and works once an administrator has
/// run the printed script and granted the rights that it names.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_ddl_rights_runs_on_the_printed_script() {
    let Some(place) = Place::given() else { return };
    let admin = place.client().await;
    let role = format!("worker_{}_{}", std::process::id(), unique());
    let make = format!("CREATE ROLE {role} LOGIN PASSWORD 'worker-secret'");
    admin.batch_execute(&make).await.unwrap();
    let (_, host) = place.url.rsplit_once('@').unwrap();
    let url = format!("postgres://{role}:worker-secret@{host}");
    let worker = Place { url, ..place.clone() };
    refused(&worker.try_open().await.unwrap_err(), Code::NeedsMigration);

    let script = StoreUrl::parse(&format!("postgres://h/db?schema={}", place.schema));
    let script = script.unwrap().migration_script().unwrap();
    admin.batch_execute(&script).await.unwrap();
    let grants: String = script
        .lines()
        .skip_while(|line| !line.starts_with("-- For each role"))
        .skip(1)
        .map(|line| line.trim_start_matches("-- ").replace("TO role", &format!("TO {role}")))
        .collect();
    assert_eq!(grants.matches("GRANT").count(), 5);
    admin.batch_execute(&grants).await.unwrap();

    let store = worker.open().await;
    let player = Player::join(&store, "a", LONG).await;
    let hold = player.hold("d").await;
    player.commit(&hold, 0, "cursor").await;
    assert!(player.keeps(&hold).await);
    player.release(&hold).await;
    let forgotten = store.forget(&[hold.duty], &reason()).await.unwrap();
    assert!(matches!(forgotten[..], [Forgotten::Forgotten { .. }]), "{forgotten:?}");
    store.retain(Retention { history_slots: 4, ..Retention::default() }).await.unwrap();
    store.adopt(&Adopt { entropy: 1, floor: Epoch::ZERO }).await.unwrap();
    drop((player, store));
    // Applying it twice is harmless.
    drop(place.open().await);
}

/// Every statement can be prepared against the current schema.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_can_read_every_statement() {
    use tokio_postgres::types::Type;
    let Some(place) = Place::given() else { return };
    drop(place.open().await);
    let client = place.client().await;
    let (text, texts) = (Type::TEXT, Type::TEXT_ARRAY);
    let who = [text.clone(), text.clone(), text.clone()];
    let files = sql_files("src/postgres/sql");
    assert!(files.len() > 20);
    for (name, sql) in files {
        if name.starts_with("routine/") || name == "bootstrap.sql" {
            continue;
        }
        // Where the server cannot infer a type by itself, the code's types are given.
        let types: Vec<Type> = match name.as_str() {
            "session/keep_alive.sql" => [&who[..], &[Type::BYTEA]].concat(),
            "hold/standing.sql" => [&who[..], &[texts.clone(), Type::INT8_ARRAY]].concat(),
            "checkpoint/load.sql" | "report/load.sql" => vec![texts.clone(), texts.clone()],
            "report/save.sql" => {
                let columns =
                    [texts.clone(), Type::INT8_ARRAY, Type::INT8_ARRAY, Type::BYTEA_ARRAY];
                [&who[..], &columns].concat()
            }
            "checkpoint/commit_one.sql" | "checkpoint/commit_refused.sql" => {
                [&who[..], &[text.clone(), Type::INT8, Type::BYTEA, Type::INT8]].concat()
            }
            "group/replace_document.sql" => vec![text.clone(), Type::INT8, Type::BYTEA],
            _ => Vec::new(),
        };
        let prepared = client.prepare_typed(&place.sql(&sql), &types).await;
        assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
    }
}
