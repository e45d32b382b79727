//! Shared state of a hold: written by the thread that renews, read by the work.

use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::engine::WorkOutcome;
use tenure_core::{
    Clock, Code, Deadline, DutyId, Epoch, Hold, LocalInstant, Session, Store, StoreError,
};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::driver::nap;
use crate::guard::HoldLost;
use crate::observe::Observer;

/// A hold at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldStatus {
    /// No effect from this instant on, unless it is moved.
    pub deadline: LocalInstant,
    /// The work was asked to come to its end.
    pub draining: bool,
    /// The process was paused: no effect before the store has confirmed the hold.
    pub suspended: bool,
    /// The hold has ended. It never comes back.
    pub lost: bool,
}

const DRAINING: u8 = 1;
const SUSPENDED: u8 = 2;
const LOST: u8 = 4;
/// User code has got the guard, so work may run.
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
    /// When it was told last.
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
        let standing = HoldStatus { deadline, draining: false, suspended: false, lost: false };
        Self {
            hold,
            margin: session.ttl.margin(),
            session,
            clock,
            deadline: AtomicU64::new(deadline.as_nanos()),
            flags: AtomicU8::new(0),
            progress,
            progressed: AtomicU64::new(0),
            changes: watch::Sender::new(standing),
        }
    }

    /// Returns the time left. It reads the clock last, so the answer is right however long this
    /// thread stood still before.
    pub(crate) fn left(&self) -> Result<Duration, HoldLost> {
        let flags = self.flags.load(Ordering::Acquire);
        let deadline = self.deadline();
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

    pub(crate) fn is_draining(&self) -> bool {
        self.flags.load(Ordering::Acquire) & DRAINING != 0
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.flags.load(Ordering::Acquire) & LOST != 0
    }

    /// Waits for the deadline as it stands now. Needs nobody who tells it: the thread that renews
    /// may be the one that is stuck (R6).
    pub(crate) async fn passed(&self) {
        // No looking up meanwhile, which thousands of holds would pay for: that a machine was
        // suspended is seen by the thread that renews, and by `left`.
        nap(&*self.clock, self.deadline(), Duration::MAX).await;
    }

    pub(crate) fn changes(&self) -> watch::Receiver<HoldStatus> {
        self.changes.subscribe()
    }

    /// The hold stands until a later deadline, and was just confirmed.
    pub(crate) fn extend(&self, deadline: Deadline) {
        // In this order: whoever sees that effects are allowed sees the deadline, too.
        self.deadline.store(deadline.at().as_nanos(), Ordering::Release);
        self.flags.fetch_and(!SUSPENDED, Ordering::AcqRel);
        self.changes.send_modify(|standing| {
            standing.deadline = deadline.at();
            standing.suspended = false;
        });
    }

    pub(crate) fn suspend(&self) {
        self.set(SUSPENDED, |standing| standing.suspended = true);
    }

    pub(crate) fn drain(&self) {
        self.set(DRAINING, |standing| standing.draining = true);
    }

    /// Whether this call has ended it.
    pub(crate) fn lose(&self) -> bool {
        self.set(LOST, |standing| standing.lost = true)
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
        // One step: what was lost is never taken, so nobody hears of a loss of what he never had.
        let stands = |flags: u8| (flags & LOST == 0).then_some(flags | DELIVERED);
        self.flags.fetch_update(Ordering::AcqRel, Ordering::Acquire, stands).is_ok()
    }

    /// Whether user code has got the guard.
    pub(crate) fn is_taken(&self) -> bool {
        self.flags.load(Ordering::Acquire) & DELIVERED != 0
    }

    /// Whether progress is worth telling: not again within a part of the time that it is asked for.
    pub(crate) fn note_progress(&self) -> bool {
        let Some(every) = self.progress else { return false };
        let now = self.clock.now();
        let told = self.progressed.load(Ordering::Relaxed);
        let due = now.since(LocalInstant::from_nanos(told)) >= every;
        // Of several threads one tells.
        let (told, now) = (&self.progressed, (told, now.as_nanos()));
        due && told.compare_exchange(now.0, now.1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Commands of guards and leave handles to the thread that renews.
///
/// The queue has no limit of its own: each hold sends one `Stopped`, one `Fenced`, one `Doubted`
/// and a few `Progress` in the time that the settings name, and a membership a handful of wishes.
#[derive(Debug)]
pub(crate) enum DriverCommand {
    Stopped { duty: DutyId, epoch: Epoch, how: WorkOutcome },
    Progress { duty: DutyId, epoch: Epoch },
    Fenced { duty: DutyId, epoch: Epoch, newest: Epoch },
    Doubted,
    Failing { rest: Duration },
    Drain,
    Leave,
}

/// Connection of guards to the driver; shared by all guards of a membership.
#[derive(Clone, Debug)]
pub(crate) struct DriverHandle {
    pub(crate) commands: mpsc::UnboundedSender<DriverCommand>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) store: Arc<StoreHandle>,
}

/// The store, asked on the runtime of the thread that renews: its connections live there, and user
/// code may come from another runtime, or from one that ends.
#[derive(Debug, Default)]
pub(crate) struct StoreHandle(OnceLock<(Handle, Arc<dyn Store>)>);

impl StoreHandle {
    pub(crate) fn open(&self, runtime: Handle, store: Arc<dyn Store>) {
        // Opened once, before the first guard is made.
        let _ = self.0.set((runtime, store));
    }

    pub(crate) async fn ask<T, Fut>(
        &self,
        call: impl FnOnce(Arc<dyn Store>) -> Fut,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let Some((runtime, store)) = self.0.get() else {
            return Err(StoreError::refused(Code::Absent, "fixed partitions have no store"));
        };
        let call = call(Arc::clone(store));
        // The thread may end while it is asked; what was sent may have happened.
        runtime.spawn(call).await.unwrap_or_else(|_| {
            Err(StoreError::unknown(Code::Lost, "the membership ended before the answer came"))
        })
    }
}
