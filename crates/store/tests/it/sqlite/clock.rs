//! The clock is read once the database is locked (R4).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::store::KeptAlive;
use tenure_core::{Clock, LocalInstant, Mutant, Store};
use tenure_store::BootClock;
use tenure_store::sqlite::{Sqlite, SqliteSettings};

use crate::player::{LONG, Player, or_hang};

/// The boot clock, which counts how often it is read.
#[derive(Debug, Default)]
struct CountingClock(AtomicU64);

impl Clock for CountingClock {
    fn now(&self) -> LocalInstant {
        self.0.fetch_add(1, Ordering::SeqCst);
        BootClock.now()
    }
}

/// Waits for a reading that a keep-alive must not make; gives up after a fifth of a second.
async fn read_early(clock: &CountingClock, before: u64) {
    let reading = async {
        while clock.0.load(Ordering::SeqCst) == before {
            tokio::task::yield_now().await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(200), reading).await;
}

/// A neighbour has the write lock while the session expires. A keep-alive that waits for the lock
/// must not revive it.
#[tokio::test(flavor = "multi_thread")]
async fn a_keep_alive_that_waited_past_the_expiry_finds_the_session_ended() {
    if let Ok(name) = std::env::var(Mutant::VARIABLE) {
        Mutant::turn_on(&name).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("tenure.db"), Arc::new(CountingClock::default()));
    let of_test: Arc<dyn Clock> = clock.clone();
    let settings =
        SqliteSettings { path: path.clone(), clock: of_test, ..SqliteSettings::default() };
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(settings).await.unwrap());
    let a = Player::join(&store, "a", LONG).await;
    let neighbour = Connection::open(&path).unwrap();
    neighbour.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = clock.0.load(Ordering::SeqCst);
    let keeping = tokio::spawn(async move { a.keep_alive(&[]).await });
    read_early(&clock, before).await;
    let expires = i64::try_from(BootClock.now().as_nanos()).unwrap();
    neighbour.execute("UPDATE session SET expires_ns = ?1", [expires]).unwrap();
    neighbour.execute_batch("COMMIT").unwrap();
    assert_eq!(or_hang(keeping).await.unwrap(), KeptAlive::Ended);
}
