//! Members for tests, on every available store.

use std::fmt::Debug;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tempfile::TempDir;
use tenure::observe::{HeldDuty, Observer};
use tenure::store::{BootClock, IfAbsent, Memory, StoreUrl};
use tenure::{
    Change, Clock, Duties, DutyId, GroupName, Guard, Instance, Join, LocalInstant, Membership,
    MembershipEvent, Opener, Record, Store, Ttl, opener, process,
};
use tokio::sync::watch;

/// Long enough for a slow machine, short enough for a person who waits for the failure.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The TTL of the tests: the shortest that every store accepts.
pub const TTL: Duration = Duration::from_secs(2);

/// A store that members share.
#[derive(Clone)]
pub struct Place {
    pub name: String,
    pub opener: Opener,
    _folder: Option<Arc<TempDir>>,
}

impl Place {
    pub fn memory() -> Self {
        let memory = Arc::new(Memory::new(Arc::new(BootClock)));
        let opener = opener(move || {
            let memory: Arc<dyn Store> = memory.clone();
            async { Ok(memory) }
        });
        Self { name: "memory".into(), opener, _folder: None }
    }

    pub fn sqlite() -> Self {
        let folder = TempDir::new().unwrap();
        let mut place = Self::at(&sqlite_url(folder.path()));
        place._folder = Some(Arc::new(folder));
        place
    }

    pub fn at(url: &str) -> Self {
        let url = StoreUrl::parse(url).unwrap();
        let name = url.to_string();
        let opener = opener(move || {
            let url = url.clone();
            async move { url.open(IfAbsent::Create, process::entropy()).await }
        });
        Self { name, opener, _folder: None }
    }

    /// Opens a handle of the test's own.
    pub async fn store(&self) -> Arc<dyn Store> {
        (self.opener)().await.unwrap()
    }
}

pub fn sqlite_url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("tenure.db").display())
}

/// The servers that the run provides.
pub fn servers() -> Vec<String> {
    let mut urls = Vec::new();
    #[cfg(feature = "postgres")]
    urls.extend(testkit::service(testkit::TEST_POSTGRES));
    #[cfg(feature = "redis")]
    urls.extend(testkit::service(testkit::TEST_REDIS));
    #[cfg(feature = "etcd")]
    urls.extend(testkit::service(testkit::TEST_ETCD));
    urls
}

/// Returns every available store.
pub fn places() -> Vec<Place> {
    let mut places = vec![Place::memory(), Place::sqlite()];
    places.extend(servers().iter().map(|url| Place::at(url)));
    places
}

/// Runs a test on every store concurrently.
pub async fn everywhere<Fut>(test: impl Fn(Place) -> Fut)
where
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut running = tokio::task::JoinSet::new();
    for place in places() {
        running.spawn(test(place));
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
}

/// Returns a group name that no other test uses.
pub fn group() -> GroupName {
    GroupName::new(format!("it-{:032x}", process::entropy())).unwrap()
}

pub fn ttl() -> Ttl {
    Ttl::new(TTL).unwrap()
}

pub fn standby() -> Duties {
    Duties::Standby(DutyId::new("one").unwrap())
}

/// Returns an instance that the store takes for another process.
pub fn stranger() -> Instance {
    Instance::mint("test", 1, process::entropy())
}

pub fn join(place: &Place, group: &GroupName, duties: Duties) -> Join {
    join_for(place, group, ttl(), duties)
}

pub fn join_for(place: &Place, group: &GroupName, ttl: Ttl, duties: Duties) -> Join {
    join_by(Arc::new(BootClock), place, group, ttl, duties)
}

/// Prepares to join with a given clock.
pub fn join_by(
    clock: Arc<dyn Clock>,
    place: &Place,
    group: &GroupName,
    ttl: Ttl,
    duties: Duties,
) -> Join {
    let join = Join::new(place.opener.clone(), clock, group.clone(), ttl, duties);
    join.instance(&stranger()).observer(Witness::new())
}

/// Waits for a future in bounded time.
pub async fn soon<T>(what: impl Debug, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for {what:?}"),
    }
}

/// Waits for the next event that `pick` accepts, and skips others.
pub async fn next<T>(
    membership: &mut Membership,
    what: &str,
    mut pick: impl FnMut(MembershipEvent) -> Option<T>,
) -> T {
    soon(what, async {
        loop {
            match membership.next().await {
                None => panic!("the membership ended while {what} was waited for"),
                Some(event) => {
                    if let Some(picked) = pick(event) {
                        return picked;
                    }
                }
            }
        }
    })
    .await
}

pub async fn assigned(membership: &mut Membership) -> Guard {
    next(membership, "an assignment", |event| match event {
        MembershipEvent::Assigned(guard) => Some(guard),
        _ => None,
    })
    .await
}

pub async fn ended(membership: &mut Membership) {
    let end = next(membership, "the end", |event| match event {
        MembershipEvent::Ended(end) => Some(end),
        _ => None,
    });
    end.await.unwrap();
}

/// The clock of one member: it can be stopped, or set ahead as if the machine had slept.
#[derive(Debug, Default)]
pub struct Dial {
    ahead: AtomicU64,
    stopped: OnceLock<LocalInstant>,
}

impl Dial {
    pub fn advance(&self, by: Duration) {
        self.ahead.fetch_add(by.as_nanos().try_into().unwrap(), Ordering::SeqCst);
    }

    pub fn stop(&self) {
        self.stopped.set(BootClock.now()).unwrap();
    }
}

impl Clock for Dial {
    fn now(&self) -> LocalInstant {
        let ahead = Duration::from_nanos(self.ahead.load(Ordering::SeqCst));
        self.stopped.get().copied().unwrap_or_else(|| BootClock.now()).plus(ahead)
    }
}

/// Observer that keeps records and lets tests wait for them.
#[derive(Debug)]
pub struct Witness {
    pub records: Mutex<Vec<Record>>,
    pub held: watch::Sender<Vec<HeldDuty>>,
    pub renewals: Mutex<Option<std::sync::mpsc::Sender<()>>>,
    seen: watch::Sender<usize>,
}

impl Witness {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            records: Mutex::default(),
            held: watch::Sender::new(Vec::new()),
            renewals: Mutex::default(),
            seen: watch::Sender::new(0),
        })
    }

    /// Waits for a record of that kind after the first `skip` records.
    pub async fn saw(&self, change: Change, skip: usize) -> Record {
        let find = || {
            let records = self.records.lock().unwrap();
            records.iter().skip(skip).find(|record| record.change == change).cloned()
        };
        let mut seen = self.seen.subscribe();
        soon(change, async {
            loop {
                if let Some(record) = find() {
                    return record;
                }
                seen.changed().await.unwrap();
            }
        })
        .await
    }

    pub fn count(&self) -> usize {
        self.records.lock().unwrap().len()
    }

    /// Waits until exactly these duties are held.
    pub async fn holds(&self, duties: &[&str]) {
        let same = |held: &Vec<HeldDuty>| {
            held.iter().map(|hold| hold.duty.as_str()).eq(duties.iter().copied())
        };
        soon(duties, async { self.held.subscribe().wait_for(same).await.map(|_| ()) })
            .await
            .unwrap();
    }
}

impl Observer for Witness {
    fn recorded(&self, _: &GroupName, record: &Record, _: u64) {
        // Shown when the test fails.
        println!("{} {:?}", record.at.as_nanos() / 1_000_000, record);
        self.records.lock().unwrap().push(record.clone());
        self.seen.send_modify(|seen| *seen += 1);
    }

    fn holding(&self, _: &GroupName, holds: &[HeldDuty]) {
        self.held.send_replace(holds.to_vec());
    }

    fn renewed(&self, _: &GroupName, _: Duration) {
        if let Some(sender) = &*self.renewals.lock().unwrap() {
            // The test may have stopped receiving.
            let _ = sender.send(());
        }
    }
}
