//! Signed checkpoints in a store whose content is tampered with.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::store::{Checkpoint, Committed, Retention};
use tenure_core::{Code, Document, InstanceId, Store, Ttl, Version};
use tenure_store::signing::{Keyring, Sealed, SignatureVerdict, Signing, verify};
use tenure_store::sqlite::{Sqlite, SqliteSettings};
use tenure_store::transfer::{Arrival, Move, Operator, OperatorSession, rewind};
use tenure_store::{BootClock, IfAbsent, Memory, StoreUrl};
use tokio::runtime::Runtime;

use crate::player::{LONG, Player, duty, load, reason, unique};

const SIGNER: &str = "k2 sign HEX,k1 verify OTHER";

fn keys(text: &str) -> Keyring {
    let text = text.replace("HEX", &"5e".repeat(32)).replace("OTHER", &"07".repeat(32));
    Keyring::parse(&text).unwrap()
}

/// A SQLite store, opened with signing, and edited directly.
struct Place {
    folder: TempDir,
    bare: Arc<dyn Store>,
}

impl Place {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let settings =
            SqliteSettings { path: folder.path().join("t.db"), ..SqliteSettings::default() };
        let bare = Arc::new(Sqlite::open(settings).await.unwrap());
        Self { folder, bare }
    }

    /// Opens the store as a process that has just started.
    fn process(&self, signing: Signing) -> Arc<dyn Store> {
        Arc::new(Sealed::new(self.bare.clone(), signing))
    }

    fn required(&self) -> Arc<dyn Store> {
        self.process(Signing::Require(keys(SIGNER)))
    }

    fn pen(&self) -> Connection {
        let pen = Connection::open(self.folder.path().join("t.db")).unwrap();
        pen.busy_timeout(LONG).unwrap();
        pen
    }

    fn edit(&self, sql: &str) {
        self.pen().execute_batch(sql).unwrap();
    }

    async fn newest(&self, id: &str) -> Checkpoint {
        self.bare.load(&[duty(id)]).await.unwrap().remove(0).unwrap()
    }

    async fn verdicts(&self, id: &str) -> Vec<SignatureVerdict> {
        let (newest, ring) = (self.newest(id).await, self.bare.history(&duty(id)).await.unwrap());
        let all = verify(&keys(SIGNER), &duty(id), Some(&newest), &ring);
        all.into_iter().map(|(_, inspected)| inspected.verdict).collect()
    }

    async fn verdict(&self, id: &str) -> SignatureVerdict {
        self.verdicts(id).await.remove(0)
    }
}

/// Makes version 2 of duty `a` the newest again.
const PUT_BACK: &str = "UPDATE checkpoint
    SET version = h.version, epoch = h.epoch, document = h.document FROM history h
    WHERE h.duty = checkpoint.duty AND h.version = 2 AND checkpoint.duty = 'a'";

/// Writes `count` versions of each duty.
async fn write(store: &Arc<dyn Store>, ids: &[&str], count: u64) {
    let player = Player::join(store, "writer", LONG).await;
    for id in ids {
        let hold = player.hold(id).await;
        let stored = load(store, id).await.unwrap();
        let first = stored.map_or(0, |stored| stored.version.get());
        for version in first..first + count {
            let document = format!("{{\"last_update_id\":{version}}}");
            let saved = player.commit(&hold, version, &document).await;
            assert!(matches!(saved, Committed::Saved(_)), "{saved:?}");
        }
    }
    store.close_session(&player.session, &reason()).await.unwrap();
}

#[tokio::test]
async fn what_was_put_in_the_place_of_the_newest_is_noticed() {
    let place = Place::new().await;
    let witness = place.required();
    write(&witness, &["a", "b"], 3).await;
    assert_eq!(place.verdict("a").await, SignatureVerdict::Good);

    // Replayed: the signature is valid, so only the ring, or having seen newer versions, reveals
    // it.
    place.edit(PUT_BACK);
    let error = load(&witness, "a").await.unwrap_err();
    assert_eq!(error.code(), Code::Replayed);
    assert_eq!(place.verdict("a").await, SignatureVerdict::Replayed);
    // If the history is cut as well, only a process that has seen newer versions notices.
    place.edit("CREATE TABLE cut AS SELECT * FROM history; DELETE FROM history WHERE version = 3");
    assert_eq!(load(&witness, "a").await.unwrap_err().code(), Code::Replayed);
    assert_eq!(load(&place.required(), "a").await.unwrap().unwrap().version.get(), 2);
    place.edit("DELETE FROM history; INSERT INTO history SELECT * FROM cut");
    place.edit(&PUT_BACK.replace("= 2", "= 3"));
    load(&witness, "a").await.unwrap();

    // Removed, with the ring still in place.
    place.edit("CREATE TABLE aside AS SELECT * FROM checkpoint; DELETE FROM checkpoint");
    for process in [&witness, &place.required()] {
        assert_eq!(load(process, "a").await.unwrap_err().code(), Code::Replayed);
        assert!(load(process, "never").await.unwrap().is_none());
    }
    assert!(load(&place.process(Signing::Off), "a").await.unwrap().is_none());
    place.edit("INSERT INTO checkpoint SELECT * FROM aside");

    // Swapped.
    place.edit(
        "UPDATE checkpoint SET document = (SELECT document FROM aside
         WHERE aside.duty = CASE checkpoint.duty WHEN 'a' THEN 'b' ELSE 'a' END)",
    );
    for id in ["a", "b"] {
        let error = load(&place.required(), id).await.unwrap_err();
        assert_eq!(error.code(), Code::BadSignature);
    }
}

#[tokio::test]
async fn a_ring_that_was_cut_on_purpose_is_good() {
    let place = Place::new().await;
    let store = place.required();
    let keep = async |history_slots| {
        let retention = Retention { history_slots, ..Retention::default() };
        store.retain(retention).await.unwrap();
    };
    write(&store, &["a"], 7).await;
    for (slots, more, left) in [(3, 0, 3), (3, 2, 3), (1, 0, 1), (1, 1, 1), (5, 3, 4), (5, 4, 5)] {
        keep(slots).await;
        write(&store, &["a"], more).await;
        assert_eq!(
            place.verdicts("a").await,
            vec![SignatureVerdict::Good; left],
            "{slots}, {more}"
        );
    }
    // After forgetting, the duty starts again at version one.
    store.forget(&[duty("a")], &reason()).await.unwrap();
    assert!(load(&place.required(), "a").await.unwrap().is_none());
    write(&store, &["a"], 2).await;
    assert_eq!(place.verdicts("a").await, vec![SignatureVerdict::Good; 2]);

    place.edit("DELETE FROM history WHERE version = 2");
    assert_eq!(place.verdict("a").await, SignatureVerdict::NotInHistory);
}

#[tokio::test]
async fn the_newest_good_one_is_offered_and_not_taken() {
    let place = Place::new().await;
    write(&place.required(), &["a"], 3).await;
    place.edit("UPDATE checkpoint SET document = x'78'");
    place.edit("UPDATE history SET document = x'78' WHERE version = 3");
    let error = load(&place.required(), "a").await.unwrap_err();
    assert_eq!(error.code(), Code::BadSignature);
    let text = error.to_string();
    assert!(text.contains("version 3 of g/a: not signed"), "{text}");
    assert!(text.contains("the newest valid one is version 2"), "{text}");
    // No commit is signed on top of an invalid document.
    let store = place.required();
    let player = Player::join(&store, "next", LONG).await;
    let hold = player.hold("a").await;
    assert_eq!(player.try_commit(&hold, 3, "y").await.unwrap_err().code(), Code::BadSignature);
    assert_eq!(place.newest("a").await.document, Document::new(*b"x").unwrap());
}

#[tokio::test]
async fn keys_are_rotated_without_a_gap() {
    let place = Place::new().await;
    let with = |text| place.process(Signing::Require(keys(text)));
    write(&with("k1 sign OTHER"), &["a"], 1).await;
    let both = with("k1 sign OTHER,k2 verify HEX");
    write(&both, &["a"], 1).await;
    let turned = with(SIGNER);
    assert_eq!(load(&turned, "a").await.unwrap().unwrap().version.get(), 2);
    write(&turned, &["a"], 1).await;
    assert_eq!(load(&both, "a").await.unwrap().unwrap().version.get(), 3);
    let retired = with("k2 sign HEX,k1 retired");
    assert_eq!(load(&retired, "a").await.unwrap().unwrap().version.get(), 3);
    // Another process still signs with the old key.
    write(&with("k1 sign OTHER,k2 verify HEX"), &["a"], 1).await;
    let error = load(&retired, "a").await.unwrap_err();
    assert_eq!(error.code(), Code::BadSignature);
    assert!(error.to_string().contains("retired key"), "{error}");
}

#[tokio::test]
async fn signing_is_turned_on_in_steps() {
    let place = Place::new().await;
    let off = place.process(Signing::Off);
    write(&off, &["a"], 1).await;
    assert_eq!(load(&place.required(), "a").await.unwrap_err().code(), Code::BadSignature);
    let writing = place.process(Signing::Write(keys(SIGNER)));
    assert_eq!(load(&writing, "a").await.unwrap().unwrap().version.get(), 1);
    write(&writing, &["a"], 1).await;
    let stored = load(&place.required(), "a").await.unwrap().unwrap();
    assert_eq!(stored.document, Document::new(*b"{\"last_update_id\":1}").unwrap());
    // Processes without signing can read signed checkpoints.
    assert_eq!(load(&off, "a").await.unwrap().unwrap(), stored);
    assert_eq!(off.history(&duty("a")).await.unwrap().len(), 2);
}

#[test]
fn any_change_of_a_stored_byte_is_noticed() {
    let runtime = Runtime::new().unwrap();
    let place = runtime.block_on(Place::new());
    runtime.block_on(write(&place.required(), &["a"], 2));
    let good = runtime.block_on(place.newest("a")).document.as_bytes().to_vec();
    let pen = place.pen();
    let put = |bytes: &[u8]| pen.execute("UPDATE checkpoint SET document = ?1", [bytes]).unwrap();
    let flips = (0..good.len(), 0_u8..8);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    runner
        .run(&flips, |(at, bit)| {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            put(&bytes);
            let error = runtime.block_on(load(&place.required(), "a")).unwrap_err();
            prop_assert!(matches!(error.code(), Code::BadSignature | Code::Damaged), "{error}");
            Ok(())
        })
        .unwrap();
    put(&good);
    runtime.block_on(load(&place.required(), "a")).unwrap().unwrap();
}

fn required(bare: &Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Sealed::new(bare.clone(), Signing::Require(keys(SIGNER))))
}

fn session(bare: &Arc<dyn Store>) -> OperatorSession {
    let operator = Operator {
        instance: InstanceId::new(format!("operator-{}", unique())).unwrap(),
        ttl: Ttl::new(LONG).unwrap(),
        reason: reason(),
        force: false,
        entropy: || u128::from(unique()) << 64,
    };
    OperatorSession::new(bare.clone(), Signing::Require(keys(SIGNER)), "here".to_owned(), operator)
}

/// A process that starts after version 2 replaced version 3 has seen neither.
async fn what_was_put_back_is_refused(bare: Arc<dyn Store>, put_back: impl AsyncFnOnce()) {
    write(&required(&bare), &["a"], 3).await;
    put_back().await;
    let newest = bare.load(&[duty("a")]).await.unwrap().remove(0).unwrap();
    assert_eq!(newest.version.get(), 2);
    let error = load(&required(&bare), "a").await.unwrap_err();
    assert_eq!(error.code(), Code::Replayed);
    assert!(error.to_string().contains("its history has version 3"), "{error}");
    // Nothing is committed on top of it, not even without loading it, and it cannot be moved.
    let next = required(&bare);
    let player = Player::join(&next, "next", LONG).await;
    let hold = player.hold("a").await;
    assert_eq!(player.try_commit(&hold, 2, "y").await.unwrap_err().code(), Code::Replayed);
    player.release(&hold).await;
    let other: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(BootClock)));
    let (mut from, mut to) = (session(&bare), session(&other));
    let same =
        |all: &[Vec<u8>]| Ok(vec![Arrival { duty: duty("a"), source: 0, payload: all[0].clone() }]);
    let moved = Move::new(&mut from, &mut to).run(&[duty("a")], &duty("a"), &same).await;
    assert_eq!(moved.unwrap_err().code(), Code::Replayed);
    assert_eq!(bare.load(&[duty("a")]).await.unwrap().remove(0), Some(newest));

    rewind(&mut from, &duty("a"), Version::new(3).unwrap()).await.unwrap();
    from.close().await;
    let store = required(&bare);
    let good = load(&store, "a").await.unwrap().unwrap();
    assert_eq!(good.document, Document::new(*b"{\"last_update_id\":2}").unwrap());
    write(&store, &["a"], 1).await;
    load(&required(&bare), "a").await.unwrap();
}

#[tokio::test]
async fn what_was_put_back_in_sqlite_is_refused() {
    let place = Place::new().await;
    what_was_put_back_is_refused(place.bare.clone(), async || place.edit(PUT_BACK)).await;
}

#[tokio::test]
async fn what_was_put_back_in_memory_is_refused() {
    let memory = Arc::new(Memory::new(Arc::new(BootClock)));
    let put_back = async || memory.put_back(&duty("a"), Version::new(2).unwrap());
    what_was_put_back_is_refused(memory.clone(), put_back).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn what_was_put_back_in_postgres_is_refused() {
    let Some(place) = crate::postgres::Place::given() else { return };
    let put_back = async || {
        let sql = PUT_BACK.replace("UPDATE checkpoint", "UPDATE tenure.checkpoint");
        let sql = place.sql(&sql.replace("FROM history", "FROM tenure.history"));
        place.client().await.batch_execute(&sql).await.unwrap();
    };
    what_was_put_back_is_refused(place.open().await, put_back).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn what_was_put_back_in_redis_is_refused() {
    use redis::AsyncCommands;
    let Some(url) = testkit::service(testkit::TEST_REDIS) else { return };
    let prefix = format!("it-{}-{}:", std::process::id(), unique());
    let settings = tenure_store::redis::RedisSettings {
        url: url.clone(),
        prefix: prefix.clone(),
        entropy: u128::from(unique()),
        if_absent: IfAbsent::Create,
    };
    let bare = Arc::new(tenure_store::redis::Redis::open(settings).await.unwrap());
    let put_back = async || {
        let client = redis::Client::open(url).unwrap();
        let mut raw = client.get_multiplexed_async_connection().await.unwrap();
        let ring: Vec<Vec<u8>> = raw.lrange(format!("{prefix}g:history:a"), 0, -1).await.unwrap();
        let old = &ring[1];
        // One line of numbers, then the instance and the document.
        let end = old.iter().position(|byte| *byte == b'\n').unwrap();
        let head = String::from_utf8(old[..end].to_vec()).unwrap();
        let head: Vec<&str> = head.split(' ').collect();
        let document = &old[end + 1 + head[3].parse::<usize>().unwrap()..];
        let fields = [("version", head[0].as_bytes()), ("epoch", head[1].as_bytes())];
        let fields = [&fields[..], &[("document", document)]].concat();
        let key = format!("{prefix}g:checkpoint:a");
        let () = raw.hset_multiple(key, &fields).await.unwrap();
    };
    what_was_put_back_is_refused(bare, put_back).await;
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn what_was_put_back_in_etcd_is_refused() {
    let Some(url) = testkit::service(testkit::TEST_ETCD) else { return };
    let prefix = format!("it-{}-{}/", std::process::id(), unique());
    let store = StoreUrl::parse(&format!("{url}?prefix={prefix}")).unwrap();
    let bare = store.open_bare(IfAbsent::Create, u128::from(unique())).await.unwrap();
    let put_back = async || {
        use tenure_etcd::{Client, Limits, Range, Txn, TxnOp};
        let host = url.trim_start_matches("etcd://").split(',').next().unwrap();
        let raw = Client::connect(host, &Limits::default()).await.unwrap();
        let kept = format!("{prefix}group/g/kept");
        let old = Range::of(format!("{kept}/history/a/{:016x}", 2));
        let old = raw.range(&old).await.unwrap().kvs.remove(0).value;
        let key = format!("{kept}/checkpoint/a");
        // etcd itself counts the versions of a key.
        let put = || TxnOp::put(key.as_str(), old.clone());
        for op in [TxnOp::delete(key.as_str()), put(), put()] {
            raw.txn(&Txn::new().and_then([op])).await.unwrap();
        }
    };
    what_was_put_back_is_refused(bare, put_back).await;
}

#[tokio::test]
async fn nothing_begins_anew_where_the_newest_was_removed() {
    let place = Place::new().await;
    write(&place.required(), &["a"], 2).await;
    place.edit("DELETE FROM checkpoint");
    let store = place.required();
    let player = Player::join(&store, "next", LONG).await;
    let hold = player.hold("a").await;
    assert_eq!(player.try_commit(&hold, 0, "y").await.unwrap_err().code(), Code::Replayed);
    assert!(place.bare.load(&[duty("a")]).await.unwrap()[0].is_none());
}
