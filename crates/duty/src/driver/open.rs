//! Start of a driver: opens the store, with retries.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::{Engine, EngineEvent, Layout, MemberSettings};
use tenure_core::store::Holder;
use tenure_core::{Change, Clock, Code, DutyId, DutyKey, Problem, Record, Store, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::holds::Holds;
use super::{Driver, ReadySender, hints, listing};
use crate::hold_state::DriverHandle;
use crate::join::{Join, Opener};
use crate::membership::{EventQueue, MembershipEvent};
use crate::{DutyError, process};

const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

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
    handle: DriverHandle,
    events: Arc<EventQueue>,
    mut commands: mpsc::UnboundedReceiver<EngineEvent>,
    ready: oneshot::Sender<Result<(), DutyError>>,
) {
    let mut ready = ReadySender { sender: Some(ready), waits: join.waits };
    let opened = tokio::select! {
        biased;
        opened = opened(&join, &mut ready) => opened,
        () = left(&mut commands) => {
            ready.send(Ok(()));
            return events.push(MembershipEvent::Ended(Ok(())));
        }
    };
    let Join { settings, clock, duties, .. } = join;
    let prepared = opened
        .map_err(DutyError::from)
        .and_then(|store| Ok((store, listing::read(duties, settings.max_duties)?)));
    let (store, lists) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            events.push(MembershipEvent::Ended(Err(error.problem())));
            return ready.send(Err(error));
        }
    };
    let guard_store = Arc::clone(&handle.store);
    let running = guard_store.open(Handle::current(), Arc::clone(&store));
    let progress = settings.progress.map(|most| most / 4);
    let driver = Driver {
        engine: Engine::new(settings.clone(), process::entropy(), clock.now()),
        holds: Holds::new(settings.group.clone(), settings.ttl, progress, clock, handle, events),
        hints: hints::listen(Arc::clone(&store), settings.group.clone()),
        lists,
        settings,
        store,
        commands,
        ready,
        joined: false,
        join_error: None,
        calls: tokio::task::JoinSet::new(),
    };
    driver.run().await;
    guard_store.close(running).await;
}

/// Opens the store. Errors are those that do not pass.
async fn opened(join: &Join, ready: &mut ReadySender) -> Result<Arc<dyn Store>, StoreError> {
    let mut pause = RetryDelay::new(Duration::from_secs(5));
    loop {
        let error = match open(&join.opener, &join.settings).await {
            Ok(store) => return Ok(store),
            Err(error) => error,
        };
        let record = join_failed(&join.settings, &*join.clock, error.problem());
        join.observer.recorded(&join.settings.group, &record, process::unix_ms());
        if !error.may_pass() || !join.waits {
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
            Err(error) if is_untrusted(error.code()) => true,
            loaded => loaded?.iter().any(Option::is_some),
        };
        if there {
            let detail = format!("{duty} has a checkpoint, and {own} has none");
            return Err(StoreError::refused(Code::OtherName, detail));
        }
    }
    Ok(())
}

/// Whether a checkpoint is there, but cannot be trusted or read.
fn is_untrusted(code: Code) -> bool {
    matches!(code, Code::BadSignature | Code::Replayed | Code::CannotDecrypt | Code::Untrusted)
}

async fn open(opener: &Opener, settings: &MemberSettings) -> Result<Arc<dyn Store>, StoreError> {
    let opener = Arc::clone(opener);
    let opening = tokio::time::timeout(OPEN_TIMEOUT, async move { opener().await });
    // A task of its own: an opener that panics is a store that cannot be opened.
    let store = match tokio::spawn(opening).await {
        Ok(Ok(opened)) => opened?,
        Ok(Err(_)) => {
            let detail = format!("it was not open within {} s", OPEN_TIMEOUT.as_secs());
            return Err(StoreError::refused(Code::Unreachable, detail));
        }
        Err(_) => return Err(StoreError::refused(Code::BadInput, "the opener panicked")),
    };
    check_names(&*store, settings).await?;
    Ok(store)
}

/// Waits for the wish to leave. Before the store is open there is nothing to hand over.
async fn left(commands: &mut mpsc::UnboundedReceiver<EngineEvent>) {
    while let Some(command) = commands.recv().await {
        if matches!(command, EngineEvent::Leave | EngineEvent::Drain) {
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
