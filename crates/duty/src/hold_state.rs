//! Shared state of a hold: written by the thread that renews, read by the work.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::engine::EngineEvent;
use tenure_core::{Clock, Code, Deadline, Hold, LocalInstant, Session, Store, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::driver::nap;
use crate::guard::HoldLost;
use crate::observe::Observer;

/// Limit of the wait for calls that are under way when a membership ends. A response that comes
/// later is lost, and the outcome is unknown.
const LAST_CALLS_TIMEOUT: Duration = Duration::from_secs(30);

/// A hold at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldStatus {
    /// No effect is allowed from this instant on.
    pub deadline: LocalInstant,
    /// The work was asked to come to its end.
    pub draining: bool,
    /// The process was paused: no effect is allowed before the store has confirmed the hold.
    pub suspended: bool,
    /// The hold has ended for good.
    pub lost: bool,
}

const DRAINING: u8 = 1;
const SUSPENDED: u8 = 2;
const LOST: u8 = 4;
/// User code has the guard, so work may run.
const DELIVERED: u8 = 8;

/// One hold as both sides see it.
#[derive(Debug)]
pub(crate) struct HoldState {
    pub(crate) hold: Hold,
    pub(crate) session: Session,
    pub(crate) margin: Duration,
    clock: Arc<dyn Clock>,
    deadline: AtomicU64,
    flags: AtomicU8,
    /// Shortest interval between progress reports; `None` when progress is not required.
    progress: Option<Duration>,
    /// Time of the last report.
    progressed: AtomicU64,
    changes: watch::Sender<HoldStatus>,
}

impl HoldState {
    pub(crate) fn new(
        hold: Hold,
        session: Session,
        deadline: LocalInstant,
        clock: Arc<dyn Clock>,
        progress: Option<Duration>,
    ) -> Self {
        let status = HoldStatus { deadline, draining: false, suspended: false, lost: false };
        Self {
            hold,
            margin: session.ttl.margin(),
            session,
            clock,
            deadline: AtomicU64::new(deadline.as_nanos()),
            flags: AtomicU8::new(0),
            progress,
            progressed: AtomicU64::new(0),
            changes: watch::Sender::new(status),
        }
    }

    /// Returns the time left. Reads the clock last, so that a pause of this thread counts.
    pub(crate) fn left(&self) -> Result<Duration, HoldLost> {
        let (flags, deadline) = (self.flags.load(Ordering::Acquire), self.deadline());
        let now = self.clock.now();
        if flags & LOST != 0 {
            return Err(HoldLost::Revoked);
        }
        if now >= deadline {
            return Err(HoldLost::Deadline);
        }
        if flags & SUSPENDED != 0 {
            return Err(HoldLost::Unconfirmed);
        }
        Ok(deadline.since(now))
    }

    pub(crate) fn deadline(&self) -> LocalInstant {
        LocalInstant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    fn has(&self, flag: u8) -> bool {
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.has(DRAINING)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.has(LOST)
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.has(DELIVERED)
    }

    /// Waits for the current deadline, independent of the thread that renews, which may be stuck
    /// (R6).
    pub(crate) async fn passed(&self) {
        // One sleep, because there may be thousands of holds: the thread that renews and `left`
        // notice that a machine was suspended.
        nap(&*self.clock, self.deadline(), Duration::MAX).await;
    }

    pub(crate) fn changes(&self) -> watch::Receiver<HoldStatus> {
        self.changes.subscribe()
    }

    /// Moves the deadline of a hold that was confirmed.
    pub(crate) fn extend(&self, deadline: Deadline) {
        // In this order: a reader that sees that effects are allowed sees the deadline, too.
        self.deadline.store(deadline.at().as_nanos(), Ordering::Release);
        self.flags.fetch_and(!SUSPENDED, Ordering::AcqRel);
        self.changes.send_modify(|status| {
            status.deadline = deadline.at();
            status.suspended = false;
        });
    }

    pub(crate) fn suspend(&self) {
        self.set(SUSPENDED, |status| status.suspended = true);
    }

    pub(crate) fn drain(&self) {
        self.set(DRAINING, |status| status.draining = true);
    }

    /// Returns whether this call has ended it.
    pub(crate) fn lose(&self) -> bool {
        self.set(LOST, |status| status.lost = true)
    }

    fn set(&self, flag: u8, change: impl FnOnce(&mut HoldStatus)) -> bool {
        let first = self.flags.fetch_or(flag, Ordering::AcqRel) & flag == 0;
        if first {
            self.changes.send_modify(change);
        }
        first
    }

    /// User code takes the guard; `false` when the hold was lost before.
    pub(crate) fn take(&self) -> bool {
        // One step, so that a loss is reported only for a guard that was taken.
        let stands = |flags: u8| (flags & LOST == 0).then_some(flags | DELIVERED);
        self.flags.fetch_update(Ordering::AcqRel, Ordering::Acquire, stands).is_ok()
    }

    /// Whether to report progress: once per interval, by one of several threads.
    pub(crate) fn note_progress(&self) -> bool {
        let Some(every) = self.progress else { return false };
        let (now, relaxed) = (self.clock.now(), Ordering::Relaxed);
        let due = |last| now.since(LocalInstant::from_nanos(last)) >= every;
        let next = |last| due(last).then_some(now.as_nanos());
        self.progressed.fetch_update(relaxed, relaxed, next).is_ok()
    }
}

/// Connection of guards to the driver; shared by all guards of a membership.
///
/// The queue needs no limit: each hold sends one `Stopped`, one `Fenced`, one `Doubted` and, per
/// interval, one `Progress`; a membership sends a handful of others.
#[derive(Clone, Debug)]
pub(crate) struct DriverHandle {
    commands: mpsc::UnboundedSender<EngineEvent>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) store: Arc<StoreHandle>,
}

impl DriverHandle {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> (Self, mpsc::UnboundedReceiver<EngineEvent>) {
        let (commands, received) = mpsc::unbounded_channel();
        (Self { commands, observer, store: Arc::default() }, received)
    }

    pub(crate) fn send(&self, command: EngineEvent) {
        // A driver that is gone has left already.
        let _ = self.commands.send(command);
    }
}

/// The store, called on the runtime of the thread that renews: its connections live there, and the
/// runtime of user code may end.
#[derive(Debug, Default)]
pub(crate) struct StoreHandle(Mutex<GuardStore>);

#[derive(Clone, Debug, Default)]
enum GuardStore {
    #[default]
    Absent,
    /// Each call keeps a clone of the sender until it has its answer.
    Open {
        runtime: Handle,
        store: Arc<dyn Store>,
        calls: mpsc::Sender<Infallible>,
    },
    Closed,
}

/// Calls that were begun by guards; it ends when they have.
pub(crate) type RunningCalls = mpsc::Receiver<Infallible>;

impl StoreHandle {
    /// Opened once, before the first guard is made.
    pub(crate) fn open(&self, runtime: Handle, store: Arc<dyn Store>) -> RunningCalls {
        let (calls, running) = mpsc::channel(1);
        self.set(GuardStore::Open { runtime, store, calls });
        running
    }

    /// Refuses calls from now on, and waits until those under way have their answers: a commit
    /// whose answer is thrown away would be unknown for no reason.
    pub(crate) async fn close(&self, mut running: RunningCalls) {
        self.set(GuardStore::Closed);
        let _ = tokio::time::timeout(LAST_CALLS_TIMEOUT, running.recv()).await;
    }

    fn set(&self, state: GuardStore) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn state(&self) -> GuardStore {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) async fn call<T, Fut>(
        &self,
        call: impl FnOnce(Arc<dyn Store>) -> Fut,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (runtime, store, running) = match self.state() {
            GuardStore::Open { runtime, store, calls } => (runtime, store, calls),
            GuardStore::Absent => {
                return Err(StoreError::refused(Code::Absent, "fixed partitions have no store"));
            }
            GuardStore::Closed => {
                return Err(StoreError::refused(Code::Fenced, "the membership has ended"));
            }
        };
        let answer = call(store);
        let answered = runtime.spawn(async move {
            let _running = running;
            answer.await
        });
        // The thread may end meanwhile; what was sent may have happened.
        answered.await.unwrap_or_else(|_| {
            Err(StoreError::unknown(Code::Lost, "the membership ended before the answer came"))
        })
    }
}
