//! Shared helpers of these tests.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tenure_core::store::{
    Checkpoint, ClaimRequest, Claimed, Commit, Committed, HoldFate, KeptAlive, OpenSession, Opened,
};
use tenure_core::{
    Clock, Code, Document, DutyKey, GroupName, Hold, InstanceId, Nonce, Note, Reason, Session,
    Store, StoreError, Ttl, Version,
};
use tenure_store::{BootClock, IfAbsent, StoreUrl};
use testkit::{EtcdOptions, EtcdServer};

/// The group of all tests; each test has a server of its own.
pub const GROUP: &str = "poll";

static LAST: AtomicU64 = AtomicU64::new(0);

/// Returns a number unique within this process, which suffices for private servers.
pub fn unique() -> u128 {
    u128::from(LAST.fetch_add(1, Ordering::Relaxed)) << 80 | u128::from(std::process::id())
}

pub fn server() -> Server {
    start(EtcdOptions::default())
}

/// One or more private servers, and the turn that limits their number.
pub struct Server {
    // Dropped before the turn.
    etcd: EtcdServer,
    _turn: Turn,
}

pub fn start(options: EtcdOptions) -> Server {
    let turn = Turn::wait();
    Server { etcd: EtcdServer::start(options).unwrap(), _turn: turn }
}

impl Deref for Server {
    type Target = EtcdServer;

    fn deref(&self) -> &EtcdServer {
        &self.etcd
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut EtcdServer {
        &mut self.etcd
    }
}

/// Maximum number of tests with servers at a time. etcd flushes each write, so on a busy machine
/// four servers answer too late.
const AT_ONCE: usize = 2;
static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();
thread_local!(static HERE: Cell<usize> = const { Cell::new(0) });

struct Turn;

impl Turn {
    /// Waits for a turn. A test takes only one: two tests that need two could block each other.
    fn wait() -> Self {
        HERE.set(HERE.get() + 1);
        if HERE.get() == 1 {
            let taken = TAKEN.lock().unwrap();
            *GIVEN_BACK.wait_while(taken, |taken| *taken == AT_ONCE).unwrap() += 1;
        }
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        HERE.set(HERE.get() - 1);
        if HERE.get() == 0 {
            *TAKEN.lock().unwrap() -= 1;
            GIVEN_BACK.notify_one();
        }
    }
}

pub async fn try_open(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    StoreUrl::parse(url)?.open(IfAbsent::Create, unique()).await
}

pub async fn open(server: &EtcdServer) -> Arc<dyn Store> {
    try_open(&server.url()).await.unwrap()
}

pub fn group() -> GroupName {
    GroupName::new(GROUP).unwrap()
}

pub fn duty(id: &str) -> DutyKey {
    DutyKey::new(GROUP, id).unwrap()
}

pub fn duties(count: usize) -> Vec<DutyKey> {
    (0..count).map(|n| duty(&format!("d{n:05}"))).collect()
}

pub fn reason() -> Reason {
    Reason::new("test").unwrap()
}

pub fn wish(name: &str, seconds: u64) -> OpenSession {
    OpenSession {
        group: group(),
        instance: InstanceId::new(format!("{name}-{:x}", unique())).unwrap(),
        nonce: Nonce::from_entropy(unique() << 20),
        ttl: Ttl::new(Duration::from_secs(seconds)).unwrap(),
        note: Note::default(),
    }
}

pub async fn join_for(store: &dyn Store, name: &str, seconds: u64) -> Session {
    let wish = wish(name, seconds);
    assert_eq!(store.open_session(&wish).await.unwrap(), Opened::Open(wish.session()));
    wish.session()
}

pub async fn join(store: &dyn Store, name: &str) -> Session {
    join_for(store, name, 3600).await
}

pub async fn claim_all(
    store: &dyn Store,
    session: &Session,
    duties: &[DutyKey],
) -> Result<Vec<Claimed>, StoreError> {
    let wants: Vec<_> = duties.iter().cloned().map(ClaimRequest::new).collect();
    store.claim(session, &wants, &reason()).await
}

pub async fn claim(store: &dyn Store, session: &Session, id: &str) -> Claimed {
    claim_all(store, session, &[duty(id)]).await.unwrap().remove(0)
}

pub fn granted(claimed: Claimed) -> Hold {
    match claimed {
        Claimed::Granted(hold) => hold,
        other => panic!("not granted but {other:?}"),
    }
}

pub async fn hold(store: &dyn Store, session: &Session, id: &str) -> Hold {
    granted(claim(store, session, id).await)
}

pub async fn commit_bytes(
    store: &dyn Store,
    session: &Session,
    hold: &Hold,
    expected: u64,
    bytes: Vec<u8>,
) -> Result<Committed, StoreError> {
    let commit = Commit {
        hold: hold.clone(),
        expected: Version::new(expected).unwrap(),
        document: Document::new(bytes).unwrap(),
    };
    Ok(store.commit(session, &[commit]).await?[0])
}

pub async fn commit(
    store: &dyn Store,
    session: &Session,
    hold: &Hold,
    expected: u64,
) -> Result<Committed, StoreError> {
    commit_bytes(store, session, hold, expected, b"cursor".to_vec()).await
}

pub async fn load(store: &dyn Store, id: &str) -> Option<Checkpoint> {
    store.load(&[duty(id)]).await.unwrap().remove(0)
}

pub fn saved(number: u64) -> Committed {
    Committed::Saved(Version::new(number).unwrap())
}

pub async fn keep(store: &dyn Store, session: &Session, hold: &Hold) -> KeptAlive {
    store.keep_alive(session, None, std::slice::from_ref(hold)).await.unwrap()
}

pub fn is_kept(kept: &KeptAlive) -> bool {
    matches!(kept, KeptAlive::Kept { holds, .. } if holds[..] == [HoldFate::Kept])
}

/// Returns the code of a `Refused` error.
pub fn refused<T>(answer: Result<T, StoreError>) -> Option<Code> {
    match answer {
        Err(StoreError::Refused(problem)) => Some(problem.code),
        _ => None,
    }
}

/// Polls until `holds`, for changes that a server makes by itself; fails after a minute.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let start = BootClock.now();
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    while !holds().await {
        assert!(BootClock.now().since(start) < Duration::from_secs(60), "waited for {what}");
        tick.tick().await;
    }
}
