//! Guarded tables: no change without a hold that was asserted in the same transaction (R12).

use tenure_core::store::{Adopt, Claimed};
use tenure_core::{Code, Epoch, Hold};
use tenure_store::postgres::fence_in;
use tokio_postgres::{Client, Error, IsolationLevel};

use super::Place;
use crate::player::{LONG, Player, unique};

/// The SQLSTATE of a write that a guard refuses.
const NOT_ASSERTED: &str = "TN002";
const INSERT: &str = "INSERT INTO tenure.effect VALUES (2, 'x')";

fn state(result: Result<(), Error>) -> Option<String> {
    result.err().map(|error| error.code().unwrap().code().to_owned())
}

/// Returns the statement that `fence()` sends.
fn assertion(place: &Place, hold: &Hold) -> String {
    let Hold { duty, epoch, instance, .. } = hold;
    place.sql(&format!("tenure.assert_hold('{duty}', {epoch}, '{instance}')"))
}

async fn rows(place: &Place) -> i64 {
    let count = place.sql("SELECT count(*) FROM tenure.effect");
    place.client().await.query_one(&count, &[]).await.unwrap().get(0)
}

/// Opens a store and creates a guarded table.
async fn guarded(place: &Place) -> (Player, Player, Client) {
    let store = place.open().await;
    let client = place.client().await;
    let table = "CREATE TABLE tenure.effect (id int PRIMARY KEY, who text);
        SELECT tenure.guard_table('tenure.effect')";
    client.batch_execute(&place.sql(table)).await.unwrap();
    (Player::join(&store, "a", LONG).await, Player::join(&store, "b", LONG).await, client)
}

/// Statements that assert a hold and undo the assertion, in different ways.
fn undone(way: &str, it: &str) -> String {
    match way {
        "savepoint" => format!("SAVEPOINT s; SELECT {it}; ROLLBACK TO SAVEPOINT s"),
        "exception" => format!(
            "DO $$ BEGIN PERFORM {it}; RAISE EXCEPTION 'no';
             EXCEPTION WHEN raise_exception THEN NULL; END $$"
        ),
        "transaction" => format!("SELECT {it}; COMMIT; BEGIN"),
        // Set by hand for the whole connection, as behind a pooler.
        _ => "SELECT set_config('tenure.fenced', '{1,g/setting,g}', false)".to_owned(),
    }
}

/// The gap that a guard closes: the rollback releases the lock, another instance is granted the
/// duty, and the transaction continues.
#[tokio::test(flavor = "multi_thread")]
async fn an_effect_after_an_assertion_that_was_undone_is_refused() {
    let Some(place) = Place::given() else { return };
    let (a, b, client) = guarded(&place).await;
    for id in ["savepoint", "exception", "transaction", "setting"] {
        let hold = a.hold(id).await;
        client.batch_execute("BEGIN").await.unwrap();
        let undone = undone(id, &assertion(&place, &hold));
        client.batch_execute(&place.sql(&undone)).await.unwrap();
        a.release(&hold).await;
        b.hold(id).await;
        let refused = state(client.batch_execute(&place.sql(INSERT)).await);
        assert_eq!(refused.as_deref(), Some(NOT_ASSERTED), "{id}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    assert_eq!(rows(&place).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_assertion_before_the_savepoint_stands() {
    let Some(place) = Place::given() else { return };
    let (a, b, mut client) = guarded(&place).await;
    let hold = a.hold("d").await;
    let effect = client.transaction().await.unwrap();
    fence_in(&effect, &place.schema, &hold).await.unwrap();
    let insert = place.sql(INSERT);
    let again = format!("SAVEPOINT s; {insert}; ROLLBACK TO SAVEPOINT s; {insert}");
    effect.batch_execute(&again).await.unwrap();
    place.lapse(&a.session).await;
    assert!(matches!(b.claim("d").await, Claimed::HeldBy(_)));
    effect.commit().await.unwrap();
    assert_eq!(rows(&place).await, 1);
    b.hold("d").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_change_a_guarded_table_needs_a_hold() {
    let Some(place) = Place::given() else { return };
    let (a, _b, client) = guarded(&place).await;
    let hold = assertion(&place, &a.hold("d").await);
    let tables = place.sql(&format!(
        "CREATE TABLE tenure.owner (id int PRIMARY KEY);
         INSERT INTO tenure.owner VALUES (1);
         ALTER TABLE tenure.effect
            ADD FOREIGN KEY (id) REFERENCES tenure.owner ON DELETE CASCADE NOT VALID;
         CREATE TABLE tenure.split (id int) PARTITION BY RANGE (id);
         CREATE TABLE tenure.low PARTITION OF tenure.split FOR VALUES FROM (0) TO (10);
         SELECT tenure.guard_table('tenure.split');
         -- A later partition is guarded like its table.
         CREATE TABLE tenure.high PARTITION OF tenure.split FOR VALUES FROM (10) TO (20);
         BEGIN; SELECT {hold};
         INSERT INTO tenure.effect VALUES (1, 'a'); INSERT INTO tenure.split VALUES (1);
         COMMIT"
    ));
    client.batch_execute(&tables).await.unwrap();
    let changes = [
        "INSERT INTO tenure.effect VALUES (1, 'x') ON CONFLICT DO NOTHING",
        "INSERT INTO tenure.effect VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET who = 'x'",
        "UPDATE tenure.effect SET who = 'x'",
        "DELETE FROM tenure.effect",
        "TRUNCATE tenure.effect",
        "COPY tenure.effect FROM PROGRAM 'echo 1,x' (FORMAT csv)",
        "DELETE FROM tenure.owner",
        "INSERT INTO tenure.split VALUES (12)",
        "INSERT INTO tenure.high VALUES (12)",
        "UPDATE tenure.split SET id = 12",
        "DELETE FROM tenure.low",
        "TRUNCATE tenure.low",
    ];
    // `COPY` inserts an existing row: with a hold it gets as far as that error.
    let (fine, there) = (None, Some("23505".to_owned()));
    for change in changes.map(|change| place.sql(change)) {
        let refused = state(client.batch_execute(&change).await);
        assert_eq!(refused.as_deref(), Some(NOT_ASSERTED), "{change}");
        client.batch_execute(&format!("BEGIN; SELECT {hold}")).await.unwrap();
        let done = state(client.batch_execute(&change).await);
        assert_eq!(done, if change.starts_with("COPY") { there.clone() } else { fine.clone() });
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    // Without a hold: only the table's owner, who locks out all others, or removes the guard.
    let trigger = format!("TRIGGER {}_guard", place.schema);
    let change = place.sql("UPDATE tenure.effect SET who = 'x'");
    let upkeep = format!(
        "BEGIN; ALTER TABLE tenure.effect DISABLE {trigger}; {change};
         ALTER TABLE tenure.effect ENABLE {trigger}; COMMIT"
    );
    client.batch_execute(&place.sql(&upkeep)).await.unwrap();
    assert!(client.batch_execute(&change).await.is_err());
    let unguard = "SELECT tenure.unguard_table('tenure.effect');
        SELECT tenure.unguard_table('tenure.split'); TRUNCATE tenure.effect, tenure.low";
    client.batch_execute(&place.sql(unguard)).await.unwrap();
    client.batch_execute(&change).await.unwrap();
}

/// With several duties in one transaction, each table requires its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_can_be_guarded_for_one_duty_or_group() {
    let Some(place) = Place::given() else { return };
    let (a, _b, client) = guarded(&place).await;
    let one = assertion(&place, &a.hold("one").await);
    let two = assertion(&place, &a.hold("two/2").await);
    let undone = format!("SELECT {one}; SAVEPOINT s; SELECT {two}; ROLLBACK TO SAVEPOINT s");
    for (scope, asserted, refused) in [
        ("g", format!("SELECT {one}"), false),
        ("g/one", format!("SELECT {one}"), false),
        ("g/two%2F2", format!("SELECT {one}; SELECT {two}"), false),
        ("other", format!("SELECT {one}"), true),
        ("g/two%2F2", format!("SELECT {one}"), true),
        ("g/two%2F2", undone, true),
    ] {
        let guard = format!("SELECT tenure.guard_table('tenure.effect', '{scope}'); BEGIN");
        client.batch_execute(&place.sql(&guard)).await.unwrap();
        client.batch_execute(&asserted).await.unwrap();
        let found = state(client.batch_execute(&place.sql(INSERT)).await);
        assert_eq!(found.as_deref(), refused.then_some(NOT_ASSERTED), "{scope}: {asserted}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// An owner needs only `USAGE` to guard a table; a writer needs no rights to be refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_needs_no_rights_on_the_tables_of_the_store() {
    let Some(place) = Place::given() else { return };
    let (_a, _b, client) = guarded(&place).await;
    let suffix = format!("{}_{}", std::process::id(), unique());
    let (owner, writer) = (format!("owner_{suffix}"), format!("writer_{suffix}"));
    let setup = format!(
        "CREATE ROLE {owner}; CREATE ROLE {writer};
         CREATE SCHEMA data_{suffix} AUTHORIZATION {owner};
         GRANT USAGE ON SCHEMA tenure.x TO {owner};
         SET ROLE {owner};
         CREATE TABLE data_{suffix}.mine (id int);
         GRANT USAGE ON SCHEMA data_{suffix} TO {writer};
         GRANT INSERT ON data_{suffix}.mine TO {writer};
         SELECT tenure.guard_table('data_{suffix}.mine')"
    );
    client.batch_execute(&place.sql(&setup).replace(".x TO", " TO")).await.unwrap();
    let others = place.sql("SELECT tenure.guard_table('tenure.effect')");
    assert_eq!(state(client.batch_execute(&others).await).as_deref(), Some("42501"));
    let write = format!("SET ROLE {writer}; INSERT INTO data_{suffix}.mine VALUES (1)");
    assert_eq!(state(client.batch_execute(&write).await).as_deref(), Some(NOT_ASSERTED));
}

/// Errors of an assertion under an old hold, per isolation level of its transaction.
const REFUSED: [(IsolationLevel, Code); 3] = [
    (IsolationLevel::ReadCommitted, Code::Fenced),
    (IsolationLevel::RepeatableRead, Code::Busy),
    (IsolationLevel::Serializable, Code::Busy),
];

/// A snapshot shows the hold as it was. Locking a version that is not the newest must fail, or a
/// hold released long ago would be valid.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_from_before_a_takeover_asserts_nothing() {
    let Some(place) = Place::given() else { return };
    let (a, b, mut client) = guarded(&place).await;
    for (level, code) in REFUSED {
        let old = a.hold("d").await;
        let effect = client.build_transaction().isolation_level(level).start().await.unwrap();
        effect.batch_execute("SELECT count(*) FROM pg_class").await.unwrap();
        a.release(&old).await;
        let new = b.hold("d").await;
        let error = fence_in(&effect, &place.schema, &old).await.unwrap_err();
        assert!(!error.is_unknown() && error.code() == code, "{level:?}: {error}");
        effect.rollback().await.unwrap();

        let effect = client.build_transaction().isolation_level(level).start().await.unwrap();
        fence_in(&effect, &place.schema, &new).await.unwrap();
        place.lapse(&b.session).await;
        assert!(matches!(a.claim("d").await, Claimed::HeldBy(_)));
        effect.batch_execute(&place.sql(INSERT)).await.unwrap();
        effect.rollback().await.unwrap();
        let hold = a.hold("d").await;
        a.release(&hold).await;
        return_session(&place, &b).await;
    }
}

/// Adopting ends sessions, which an older snapshot still shows as live, so it changes each hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_from_before_an_adoption_asserts_nothing() {
    let Some(place) = Place::given() else { return };
    let (a, _b, mut client) = guarded(&place).await;
    for (level, code) in REFUSED {
        let old = Player::join(&a.store, "c", LONG).await.hold("d").await;
        let effect = client.build_transaction().isolation_level(level).start().await.unwrap();
        effect.batch_execute("SELECT count(*) FROM pg_class").await.unwrap();
        a.store.adopt(&Adopt { entropy: 1, floor: Epoch::ZERO }).await.unwrap();
        let error = fence_in(&effect, &place.schema, &old).await.unwrap_err();
        assert!(!error.is_unknown() && error.code() == code, "{level:?}: {error}");
        // Until then it may lock the duty.
        effect.rollback().await.unwrap();
    }
}

/// Undoes [`Place::lapse`] and the effects of a takeover.
async fn return_session(place: &Place, player: &Player) {
    let sql = "UPDATE tenure.session SET ended = false, expires_at = clock_timestamp() + ttl";
    let sql = format!("{} WHERE nonce = '{}'", place.sql(sql), player.session.nonce);
    place.client().await.batch_execute(&sql).await.unwrap();
}
