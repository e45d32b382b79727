//! An instance in a test: a store, a session, and short helpers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::store::{
    Checkpoint, ClaimRequest, Claimed, Commit, Committed, HoldFate, KeptAlive, OpenSession, Opened,
    Report, Reported,
};
use tenure_core::{
    Document, DutyKey, GroupName, Hold, InstanceId, Nonce, Note, Reason, Session, Store,
    StoreError, Ttl, Version,
};
use tenure_store::signing::{Protection, Sealed};
use tenure_store::{BootClock, Memory};

static LAST: AtomicU64 = AtomicU64::new(1);

/// Returns a number that no other player of this process has.
pub fn unique() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// So long that nothing expires by accident on a slow machine.
pub const LONG: Duration = Duration::from_secs(3600);

pub fn reason() -> Reason {
    Reason::new("test").unwrap()
}

pub fn duty(id: &str) -> DutyKey {
    DutyKey::new("g", id).unwrap()
}

pub fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new(Arc::new(BootClock)))
}

/// Opens a store as a process that protects its checkpoints in this way.
pub fn process(bare: &Arc<dyn Store>, protection: Protection) -> Arc<dyn Store> {
    Arc::new(Sealed::new(bare.clone(), protection))
}

/// Loads the checkpoint of a duty.
pub async fn load(store: &Arc<dyn Store>, id: &str) -> Result<Option<Checkpoint>, StoreError> {
    Ok(store.load(&[duty(id)]).await?.remove(0))
}

pub fn wish(name: &str, ttl: Duration) -> OpenSession {
    OpenSession {
        group: GroupName::new("g").unwrap(),
        instance: InstanceId::new(format!("{name}-{}", unique())).unwrap(),
        nonce: Nonce::from_entropy(u128::from(unique()) << 80 | u128::from(std::process::id())),
        ttl: Ttl::new(ttl).unwrap(),
        note: Note::default(),
    }
}

/// A member of group `g`.
#[derive(Clone, Debug)]
pub struct Player {
    pub store: Arc<dyn Store>,
    pub session: Session,
}

impl Player {
    pub async fn join(store: &Arc<dyn Store>, name: &str, ttl: Duration) -> Self {
        let wish = wish(name, ttl);
        let opened = store.open_session(&wish).await.unwrap();
        assert_eq!(opened, Opened::Open(wish.session()));
        Self { store: store.clone(), session: wish.session() }
    }

    pub async fn try_claim(&self, id: &str) -> Result<Claimed, StoreError> {
        let want = ClaimRequest::new(duty(id));
        Ok(self.store.claim(&self.session, &[want], &reason()).await?.remove(0))
    }

    pub async fn claim(&self, id: &str) -> Claimed {
        self.try_claim(id).await.unwrap()
    }

    pub async fn hold(&self, id: &str) -> Hold {
        match self.claim(id).await {
            Claimed::Granted(hold) => hold,
            other => panic!("{id} was not granted but {other:?}"),
        }
    }

    /// Stores a report.
    pub async fn report(&self, hold: &Hold, text: &str) {
        let document = Document::new(text).unwrap();
        let report = Report { hold: hold.clone(), number: 7, document };
        let stored = self.store.report(&self.session, &[report]).await.unwrap();
        assert_eq!(stored, [Reported::Stored]);
    }

    /// Claims many duties in one call; all must be granted.
    pub async fn hold_all(&self, ids: &[String]) -> Vec<Hold> {
        let wants: Vec<_> = ids.iter().map(|id| ClaimRequest::new(duty(id))).collect();
        let claimed = self.store.claim(&self.session, &wants, &reason()).await.unwrap();
        let granted = claimed.into_iter().map(|claimed| match claimed {
            Claimed::Granted(hold) => hold,
            other => panic!("not granted but {other:?}"),
        });
        granted.collect()
    }

    pub async fn try_commit(
        &self,
        hold: &Hold,
        expected: u64,
        text: &str,
    ) -> Result<Committed, StoreError> {
        let commit = Commit {
            hold: hold.clone(),
            expected: Version::new(expected).unwrap(),
            document: Document::new(text.as_bytes()).unwrap(),
        };
        Ok(self.store.commit(&self.session, &[commit]).await?.remove(0))
    }

    pub async fn commit(&self, hold: &Hold, expected: u64, text: &str) -> Committed {
        self.try_commit(hold, expected, text).await.unwrap()
    }

    pub async fn release(&self, hold: &Hold) {
        let holds = std::slice::from_ref(hold);
        self.store.release(&self.session, holds, &reason()).await.unwrap();
    }

    pub async fn keep_alive(&self, holds: &[Hold]) -> KeptAlive {
        self.store.keep_alive(&self.session, None, holds).await.unwrap()
    }

    pub async fn keeps(&self, hold: &Hold) -> bool {
        let kept = self.keep_alive(std::slice::from_ref(hold)).await;
        matches!(kept, KeptAlive::Kept { holds, .. } if holds == [HoldFate::Kept])
    }

    /// Claims until it is granted. Each attempt waits for a tick, so that the loop does not spin.
    pub async fn claim_until_granted(&self, id: &str) -> Hold {
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        loop {
            if let Claimed::Granted(hold) = self.claim(id).await {
                return hold;
            }
            tick.tick().await;
        }
    }
}

/// Far above the needs of any test; only turns a hang into a failure.
pub async fn or_hang<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it hangs")
}

/// Returns the SQL files below a folder of this crate: path and text.
pub fn sql_files(folder: &str) -> Vec<(String, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let (mut folders, mut files) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            files.push((name, std::fs::read_to_string(path).unwrap()));
        }
    }
    files.sort();
    files
}
