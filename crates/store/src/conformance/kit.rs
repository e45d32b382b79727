//! Fixture and helpers of a case.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::store::{
    Checkpoint, ClaimRequest, Claimed, Commit, Committed, HoldFate, KeptAlive, OpenSession, Opened,
};
use tenure_core::{
    BoxFuture, Document, DutyKey, GroupName, Hold, InstanceId, Nonce, Note, Reason, Session, Store,
    Ttl, Version,
};

/// One store, which a case can open any number of times.
pub trait StoreFixture: Debug + Send + Sync + 'static {
    /// Opens another client of the same store.
    fn open(&self) -> BoxFuture<'static, Arc<dyn Store>>;

    /// Makes the store treat the TTL of this session, and of no other, as over.
    fn lapse(&self, session: Session) -> BoxFuture<'static, ()>;

    /// Deletes the store's record of this duty's holder and epoch, as a restore or an eviction of
    /// keys would. The checkpoint stays.
    fn lose_epoch(&self, duty: DutyKey) -> BoxFuture<'static, ()>;

    /// Creates another empty store of the same kind, for cases that change a store as a whole.
    fn fresh(&self) -> BoxFuture<'static, Arc<dyn StoreFixture>>;
}

static LAST_EPOCH: AtomicU64 = AtomicU64::new(0);

/// Returns a number that no other case of any process gets.
fn unique() -> u128 {
    u128::from(std::process::id()) << 96
        | u128::from(super::super::clock::boot_nanos()) << 32
        | u128::from(LAST_EPOCH.fetch_add(1, Ordering::Relaxed))
}

/// A store, a client, and a group that no other case uses.
#[derive(Clone, Debug)]
pub struct Kit {
    pub place: Arc<dyn StoreFixture>,
    pub store: Arc<dyn Store>,
    pub group: GroupName,
}

impl Kit {
    pub async fn new(place: Arc<dyn StoreFixture>) -> Self {
        let group = GroupName::new(format!("case-{:x}", unique())).unwrap();
        Self { store: place.open().await, place, group }
    }

    /// Returns a kit with a store of its own.
    pub async fn fresh(&self) -> Self {
        Self::new(self.place.fresh().await).await
    }

    /// Returns the same group, seen by another client.
    pub async fn other_client(&self) -> Self {
        Self { store: self.place.open().await, ..self.clone() }
    }

    pub fn duty(&self, id: &str) -> DutyKey {
        DutyKey::new(self.group.as_str(), id).unwrap()
    }

    pub fn duties(&self, count: usize) -> Vec<DutyKey> {
        (0..count).map(|n| self.duty(&format!("d{n:05}"))).collect()
    }

    /// A request to join with a TTL so long that nothing expires unless the case makes it.
    pub fn wish(&self, name: &str) -> OpenSession {
        OpenSession {
            group: self.group.clone(),
            instance: InstanceId::new(format!("{name}-{:x}", unique())).unwrap(),
            nonce: Nonce::from_entropy(unique()),
            ttl: Ttl::new(Duration::from_secs(3600)).unwrap(),
            note: Note::default(),
        }
    }

    pub async fn open(&self, wish: &OpenSession) -> Opened {
        self.store.open_session(wish).await.unwrap()
    }

    pub async fn join(&self, name: &str) -> Session {
        let wish = self.wish(name);
        assert_eq!(self.open(&wish).await, Opened::Open(wish.session()));
        wish.session()
    }

    pub async fn lapse(&self, session: &Session) {
        self.place.lapse(session.clone()).await;
    }

    pub async fn claim(&self, session: &Session, duties: &[DutyKey]) -> Vec<Claimed> {
        let wants: Vec<_> = duties.iter().cloned().map(ClaimRequest::new).collect();
        let claimed = self.store.claim(session, &wants, &reason("case")).await.unwrap();
        assert_eq!(claimed.len(), duties.len());
        claimed
    }

    /// Claims duties that must all be granted.
    pub async fn hold_all(&self, session: &Session, duties: &[DutyKey]) -> Vec<Hold> {
        let claimed = self.claim(session, duties).await;
        claimed.into_iter().map(granted).collect()
    }

    pub async fn hold(&self, session: &Session, id: &str) -> Hold {
        self.hold_all(session, &[self.duty(id)]).await.remove(0)
    }

    pub async fn keep_alive(&self, session: &Session, holds: &[Hold]) -> KeptAlive {
        self.store.keep_alive(session, None, holds).await.unwrap()
    }

    /// Returns the fates of holds whose session must be alive.
    pub async fn fates(&self, session: &Session, holds: &[Hold]) -> Vec<HoldFate> {
        match self.keep_alive(session, holds).await {
            KeptAlive::Kept { holds: fates, .. } => fates,
            KeptAlive::Ended => panic!("the session has ended"),
        }
    }

    pub async fn release(&self, session: &Session, hold: &Hold) -> tenure_core::store::Released {
        let holds = std::slice::from_ref(hold);
        self.store.release(session, holds, &reason("case")).await.unwrap()[0]
    }

    pub async fn commit(
        &self,
        session: &Session,
        hold: &Hold,
        expected: u64,
        document: &str,
    ) -> Committed {
        let commit =
            Commit { hold: hold.clone(), expected: version(expected), document: doc(document) };
        self.store.commit(session, &[commit]).await.unwrap()[0]
    }

    pub async fn load(&self, duty: &DutyKey) -> Option<Checkpoint> {
        self.store.load(std::slice::from_ref(duty)).await.unwrap().remove(0)
    }

    pub async fn member_ids(&self) -> Vec<InstanceId> {
        let members = self.store.members(&self.group).await.unwrap();
        members.into_iter().map(|member| member.instance).collect()
    }
}

pub fn reason(text: &str) -> Reason {
    Reason::new(text).unwrap()
}

pub fn version(number: u64) -> Version {
    Version::new(number).unwrap()
}

pub fn doc(text: &str) -> Document {
    Document::new(text.as_bytes()).unwrap()
}

pub fn granted(claimed: Claimed) -> Hold {
    match claimed {
        Claimed::Granted(hold) => hold,
        other => panic!("not granted but {other:?}"),
    }
}

pub fn is_held(claimed: &Claimed) -> bool {
    matches!(claimed, Claimed::HeldBy(_))
}
