//! From nothing to a running driver: the store is opened, again and again if need be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::{Engine, Layout, MemberSettings};
use tenure_core::store::Holder;
use tenure_core::{Change, Clock, Code, DutyId, DutyKey, Problem, Record, Store, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::holds::Holds;
use super::{Driver, ReadySender, hints, listing};
use crate::hold_state::{DriverCommand, DriverHandle};
use crate::join::{Join, Opener};
use crate::membership::{EventQueue, MembershipEvent};
use crate::process;

/// No store takes longer to open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether waiting may cure it.
pub(super) fn may_pass(code: Code) -> bool {
    matches!(
        code,
        Code::Unreachable | Code::Lost | Code::Busy | Code::Reset | Code::Full | Code::Failed
    )
}

pub(super) fn join_failed(
    settings: &MemberSettings,
    clock: &dyn Clock,
    problem: &Problem,
) -> Record {
    Record {
        at: clock.now(),
        change: Change::JoinFailed,
        instance: settings.instance.clone(),
        duty: None,
        epoch: None,
        other: None,
        reason: problem.to_string().into(),
    }
}

/// The thread that renews, from start to end.
pub(super) async fn attend(
    join: Join,
    desk: DriverHandle,
    inbox: Arc<EventQueue>,
    mut orders: mpsc::UnboundedReceiver<DriverCommand>,
    ready: oneshot::Sender<Result<(), StoreError>>,
) {
    let mut ready = ReadySender { sender: Some(ready), waits: join.waits };
    let opened = tokio::select! {
        biased;
        opened = opened(&join, &mut ready) => opened,
        () = left(&mut orders) => {
            ready.tell(Ok(()));
            return inbox.push(MembershipEvent::Ended(Ok(())));
        }
    };
    let most = join.settings.most_duties;
    let prepared = opened.and_then(|store| Ok((store, listing::read(join.duties.clone(), most)?)));
    let (store, lists) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            inbox.push(MembershipEvent::Ended(Err(error.problem().clone())));
            return ready.tell(Err(error));
        }
    };
    desk.store.open(Handle::current(), Arc::clone(&store));
    let Join { settings, clock, .. } = join;
    let driver = Driver {
        engine: Engine::new(settings.clone(), process::entropy(), clock.now()),
        holds: Holds {
            group: settings.group.clone(),
            ttl: settings.ttl,
            progress: settings.progress.map(|most| most / 4),
            clock: Arc::clone(&clock),
            desk: desk.clone(),
            inbox: Arc::clone(&inbox),
            tenancies: BTreeMap::new(),
            changed: false,
        },
        hints: hints::listen(Arc::clone(&store), settings.group.clone()),
        lists,
        settings,
        store,
        clock,
        desk,
        inbox,
        orders,
        ready,
        joined: false,
        join_error: None,
        asks: tokio::task::JoinSet::new(),
    };
    driver.run().await;
}

/// The store. Only what waiting cannot cure is an error.
async fn opened(join: &Join, ready: &mut ReadySender) -> Result<Arc<dyn Store>, StoreError> {
    let mut pause = RetryDelay::new(Duration::from_secs(5));
    loop {
        let error = match open(&join.opener).await {
            Ok(store) => match check_names(&*store, &join.settings).await {
                Ok(()) => return Ok(store),
                Err(error) => error,
            },
            Err(error) => error,
        };
        let (group, problem) = (&join.settings.group, error.problem());
        let record = join_failed(&join.settings, &*join.clock, problem);
        join.observer.recorded(group, &record, process::unix_ms());
        if !may_pass(error.code()) || !join.waits {
            return Err(error);
        }
        ready.failed(error);
        pause.wait().await;
    }
}

/// Refuses a group of shards in which one has its checkpoint under `NAME:shard-N`, as some
/// connectors call it, and none under its own name: its holder would begin from nothing.
async fn check_names(store: &dyn Store, settings: &MemberSettings) -> Result<(), StoreError> {
    let Layout::Shards(count) = settings.layout else { return Ok(()) };
    let group = &settings.group;
    let is_shard = |id: &DutyId| Layout::shard_of(id).is_some_and(|n| n < count);
    for Holder { duty, .. } in store.holders(group).await? {
        let shard = duty.id.as_str().rsplit_once(":shard-").map(|(_, n)| DutyId::new(n));
        let Some(Ok(shard)) = shard.filter(|id| id.as_ref().is_ok_and(is_shard)) else { continue };
        let own = DutyKey { group: group.clone(), id: shard };
        if store.load(std::slice::from_ref(&own)).await?.iter().any(Option::is_some) {
            continue;
        }
        let there = match store.load(std::slice::from_ref(&duty)).await {
            // It has been given its name since.
            Err(error) if error.code() == Code::Moved => false,
            // Not to be trusted, but there.
            Err(error) if matches!(error.code(), Code::BadSignature | Code::Replayed) => true,
            loaded => loaded?.iter().any(Option::is_some),
        };
        if there {
            let detail = format!("{duty} has a checkpoint, and {own} has none");
            return Err(StoreError::refused(Code::OtherName, detail));
        }
    }
    Ok(())
}

/// A task of its own: an opener that panics is a store that cannot be opened.
async fn open(opener: &Opener) -> Result<Arc<dyn Store>, StoreError> {
    let opener = Arc::clone(opener);
    let opening = tokio::time::timeout(OPEN_TIMEOUT, async move { opener().await });
    match tokio::spawn(opening).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(_)) => {
            let detail = format!("it was not open within {} s", OPEN_TIMEOUT.as_secs());
            Err(StoreError::refused(Code::Unreachable, detail))
        }
        Err(_) => Err(StoreError::refused(Code::BadInput, "the opener panicked")),
    }
}

/// Waits for the wish to go. Before the store is open there is nothing to hand over.
async fn left(orders: &mut mpsc::UnboundedReceiver<DriverCommand>) {
    while let Some(order) = orders.recv().await {
        if matches!(order, DriverCommand::Leave | DriverCommand::Drain) {
            return;
        }
    }
}

/// Pauses between attempts: longer each time, and of different length in each process.
#[derive(Debug)]
pub(super) struct RetryDelay {
    next: Duration,
    most: Duration,
}

impl RetryDelay {
    const INITIAL_DELAY: Duration = Duration::from_millis(100);

    pub(super) fn new(most: Duration) -> Self {
        Self { next: Self::INITIAL_DELAY, most }
    }

    pub(super) fn reset(&mut self) {
        self.next = Self::INITIAL_DELAY;
    }

    pub(super) async fn wait(&mut self) {
        // Between the half and the whole: members that lost their store together come back apart.
        let part = (process::entropy() & 0xff) as u32;
        tokio::time::sleep(self.next / 2 + self.next / 512 * part).await;
        self.next = (self.next * 2).min(self.most);
    }
}
