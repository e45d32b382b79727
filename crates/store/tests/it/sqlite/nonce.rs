//! Retention of a session's nonce.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use tenure_core::Store;
use tenure_core::store::{Committed, KeptAlive, OpenSession, Opened};

use super::open;
use crate::player::{LONG, Player, reason, wish};

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
    store: Arc<dyn Store>,
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenure.db");
        let store = open(&path).await;
        Self { _folder: folder, path, store }
    }

    fn run(&self, sql: &str) -> usize {
        connect(&self.path).execute(sql, []).unwrap()
    }

    /// Ages every nonce record by more than a week.
    fn a_week_later(&self) {
        self.run("UPDATE spent SET unix_ms = unix_ms - 8 * 24 * 60 * 60 * 1000");
    }

    /// Ends the session of that name more than a day ago.
    fn end(&self, name: &str) {
        let sql = "UPDATE session SET expires_ns = -1000000000000000000 WHERE instance LIKE";
        assert_eq!(self.run(&format!("{sql} '{name}-%'")), 1);
    }

    fn count(&self, sql: &str) -> i64 {
        connect(&self.path).query_row(sql, [], |row| row.get(0)).unwrap()
    }

    async fn join(&self, wish: &OpenSession) -> Player {
        assert_eq!(self.opened(wish).await, Opened::Open(wish.session()));
        Player { store: self.store.clone(), session: wish.session() }
    }

    async fn opened(&self, wish: &OpenSession) -> Opened {
        self.store.open_session(wish).await.unwrap()
    }
}

fn connect(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(LONG).unwrap();
    connection
}

/// The session lived longer than nonces are kept, and its holds were not claimed since. Opening it
/// again with its nonce would make them valid under their old epochs.
#[tokio::test(flavor = "multi_thread")]
async fn the_nonce_of_a_long_session_is_spent_when_it_ends() {
    let place = Place::new().await;
    let first = wish("a", LONG);
    let a = place.join(&first).await;
    let hold = a.hold("d").await;
    a.commit(&hold, 0, "first").await;
    place.a_week_later();
    Player::join(&place.store, "other", LONG).await;
    assert_eq!(place.count("SELECT count(*) FROM spent"), 2, "while it lives");
    assert!(a.keeps(&hold).await);
    place.end("a");
    for others in 0..3 {
        assert_eq!(place.opened(&first).await, Opened::Spent, "after {others} others");
        assert_eq!(a.keep_alive(std::slice::from_ref(&hold)).await, KeptAlive::Ended);
        let committed = a.commit(&hold, 1, "late").await;
        assert!(matches!(committed, Committed::Fenced { .. }), "{committed:?}");
        // Joining sweeps: first the session, later the nonce that no session row carries any more.
        Player::join(&place.store, "other", LONG).await;
        place.a_week_later();
    }
    let rows = "SELECT count(*) FROM hold WHERE held";
    assert_eq!(place.count(rows), 1);
}

/// The session's row also records the nonce, even if the row in `spent` was lost.
#[tokio::test(flavor = "multi_thread")]
async fn the_nonce_of_a_session_that_is_still_there_is_spent() {
    let place = Place::new().await;
    let first = wish("a", LONG);
    place.join(&first).await;
    place.end("a");
    assert_eq!(place.run("DELETE FROM spent"), 1);
    assert_eq!(place.opened(&first).await, Opened::Spent);
}

/// A week counts from the end of the session, not from its beginning, whether it is swept or
/// replaced by another session of its instance.
#[tokio::test(flavor = "multi_thread")]
async fn a_nonce_is_remembered_for_a_week_from_when_its_session_goes() {
    let place = Place::new().await;
    let swept = wish("swept", LONG);
    let followed = wish("followed", LONG);
    place.join(&swept).await;
    let ended = place.join(&followed).await;
    place.a_week_later();
    place.end("swept");
    ended.store.close_session(&ended.session, &reason()).await.unwrap();
    let next = OpenSession { instance: followed.instance.clone(), ..wish("", LONG) };
    place.join(&next).await;
    Player::join(&place.store, "other", LONG).await;
    let members = "SELECT count(*) FROM session";
    assert_eq!(place.count(members), 2);
    assert_eq!(place.opened(&swept).await, Opened::Spent);
    // The instance has another session: for a different instance, only the nonce counts.
    let same = OpenSession { instance: swept.instance.clone(), ..followed };
    assert_eq!(place.opened(&same).await, Opened::Spent);
    // And no longer, when no session row carries it.
    place.a_week_later();
    Player::join(&place.store, "other", LONG).await;
    let spent = "SELECT count(*) FROM spent";
    assert_eq!(place.count(spent), 3);
}
