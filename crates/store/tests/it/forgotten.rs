//! Duties with a report that a version without reports forgets: the report must not outlive them.

use std::sync::Arc;

use tenure_core::store::{DutyReport, Forgotten, Report, Reported};
use tenure_core::{Document, Epoch, Store};
use tenure_store::{IfAbsent, StoreUrl};

use crate::player::{LONG, Player, duty, reason, unique};

async fn open(url: &str) -> Arc<dyn Store> {
    StoreUrl::parse(url).unwrap().open(IfAbsent::Create, unique().into()).await.unwrap()
}

async fn report(store: &Arc<dyn Store>) -> Option<DutyReport> {
    store.reports(&[duty("d")]).await.unwrap().remove(0)
}

/// Stores a report on a duty, commits, and releases it. Returns the epoch.
async fn leave_report(store: &Arc<dyn Store>) -> Epoch {
    let player = Player::join(store, "a", LONG).await;
    let hold = player.hold("d").await;
    player.commit(&hold, 0, "cursor").await;
    let document = Document::new(*b"fine").unwrap();
    let new = Report { hold: hold.clone(), number: 1, document };
    assert_eq!(store.report(&player.session, &[new]).await.unwrap(), [Reported::Stored]);
    player.release(&hold).await;
    assert!(report(store).await.is_some());
    hold.epoch
}

/// Forgets the duty, which this store still knows.
async fn forget_duty(store: &Arc<dyn Store>) {
    let forgotten = store.forget(&[duty("d")], &reason()).await.unwrap();
    assert!(matches!(forgotten[0], Forgotten::Forgotten { .. }), "{forgotten:?}");
}

/// Checks a store in which an older version has forgotten the duty.
async fn is_gone(store: &Arc<dyn Store>) {
    assert_eq!(report(store).await, None, "forgotten");
    let player = Player::join(store, "b", LONG).await;
    let hold = player.hold("d").await;
    assert_eq!(report(store).await, None, "granted anew");
    let document = Document::new(*b"new").unwrap();
    let new = Report { hold: hold.clone(), number: 1, document };
    assert_eq!(store.report(&player.session, &[new]).await.unwrap(), [Reported::Stored]);
    assert_eq!(report(store).await.unwrap().epoch, hold.epoch);
    player.release(&hold).await;
    forget_duty(store).await;
    let again = store.forget(&[duty("d")], &reason()).await.unwrap();
    assert_eq!((report(store).await, again), (None, vec![Forgotten::Absent]));
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_a_trigger_deletes_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    let store = open(&format!("sqlite:{}", path.display())).await;
    let epoch = leave_report(&store).await;
    let file = rusqlite::Connection::open(&path).unwrap();
    let raise = include_str!("../../src/sqlite/sql/floor/raise.sql");
    file.execute(raise, ("g", epoch.get() as i64)).unwrap();
    for sql in [
        include_str!("../../src/sqlite/sql/hold/forget.sql"),
        include_str!("../../src/sqlite/sql/checkpoint/forget.sql"),
        include_str!("../../src/sqlite/sql/history/forget.sql"),
    ] {
        assert_eq!(file.execute(sql, ("g", "d")).unwrap(), 1);
    }
    let left = "SELECT count(*) FROM report";
    assert_eq!(file.query_row(left, (), |row| row.get::<_, i64>(0)).unwrap(), 0);
    is_gone(&store).await;
    // A row that nothing else knows.
    let row = "INSERT INTO report VALUES ('g', 'd', 1, 1, 'a', x'00', 0)";
    assert_eq!(file.execute(row, ()).unwrap(), 1);
    forget_duty(&store).await;
    assert_eq!(file.query_row(left, (), |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn on_redis_the_next_grant_deletes_it() {
    let server = testkit::RedisServer::start(testkit::RedisOptions::default()).unwrap();
    let store = open(&server.url()).await;
    let forget = || {
        let removed = ["g:fence:d", "g:checkpoint:d", "g:history:d"];
        let removed = server.cli(&[&["del"][..], &removed].concat()).unwrap();
        assert_eq!(removed.trim(), "3");
        server.cli(&["hdel", "g:grants", "d"]).unwrap();
        assert_eq!(server.cli(&["exists", "g:report:d"]).unwrap().trim(), "1");
    };
    let epoch = leave_report(&store).await.to_string();
    server.cli(&["set", "g:floor", &epoch]).unwrap();
    forget();
    is_gone(&store).await;
    // Nothing else knows the duty: this version forgets it, too.
    leave_report(&store).await;
    forget();
    forget_duty(&store).await;
    assert_eq!(server.cli(&["exists", "g:report:d"]).unwrap().trim(), "0");
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread")]
async fn on_etcd_a_report_from_before_the_fence_is_ignored() {
    let server = testkit::EtcdServer::start(testkit::EtcdOptions::default()).unwrap();
    let store = open(&server.url()).await;
    let keys = |words: &[&str]| server.etcdctl(words).unwrap();
    let forget = || {
        let group = "tenure/group/g";
        for key in ["live/fence/d", "kept/checkpoint/d", "kept/history/d/0000000000000001"] {
            assert_eq!(keys(&["del", &format!("{group}/{key}")]).trim(), "1", "{key}");
        }
        assert!(!keys(&["get", &format!("{group}/kept/report/d")]).is_empty());
    };
    let epoch = leave_report(&store).await.to_string();
    keys(&["put", "tenure/group/g/kept/floor", &epoch]);
    forget();
    is_gone(&store).await;
    // Nothing else knows the duty: this version forgets it, too.
    leave_report(&store).await;
    forget();
    forget_duty(&store).await;
    assert_eq!(keys(&["get", "tenure/group/g/kept/report/d"]), "");
}
