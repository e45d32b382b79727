//! Guard of a duty: the handle with which user code acts while the hold stands.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::engine::WorkOutcome;
use tenure_core::store::{Checkpoint, Commit, Committed, HoldFate, KeptAlive};
use tenure_core::{
    Code, Document, DutyId, DutyKey, Epoch, Hold, InstanceId, LocalInstant, Problem, StoreError,
    Version,
};
use tokio::sync::{Mutex, watch};

use crate::hold_state::{DriverCommand, DriverHandle, HoldState, HoldStatus};

/// The right to one duty, from its assignment until the work on it has ended.
///
/// Keep it (or a clone) while you work. When the last handle is dropped, or
/// [`Guard::finished`] is called, the duty is given back.
#[derive(Clone, Debug)]
pub struct Guard {
    inner: Arc<GuardInner>,
}

#[derive(Debug)]
struct GuardInner {
    tenancy: Arc<HoldState>,
    desk: DriverHandle,
    /// The version that a commit replaces; `None` before anything was read.
    version: Mutex<Option<Version>>,
    told: AtomicBool,
}

/// Why no effect is allowed under a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldLost {
    /// The hold has ended: stop.
    Revoked,
    /// The deadline has passed, or comes before the effect would be done: stop.
    Deadline,
    /// The process was paused, and the store has not confirmed the hold since. It may stand: wait
    /// for [`Guard::confirmed`], or stop.
    Unconfirmed,
}

impl fmt::Display for HoldLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Revoked => "the hold has ended",
            Self::Deadline => "the deadline of the hold comes first",
            Self::Unconfirmed => "the hold is not confirmed since a pause",
        })
    }
}

impl std::error::Error for HoldLost {}

impl From<HoldLost> for StoreError {
    fn from(lost: HoldLost) -> Self {
        Self::refused(Code::Fenced, lost.to_string())
    }
}

impl Guard {
    pub(crate) fn new(tenancy: Arc<HoldState>, desk: DriverHandle) -> Self {
        let inner =
            GuardInner { tenancy, desk, version: Mutex::new(None), told: AtomicBool::new(false) };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn tenancy(&self) -> &Arc<HoldState> {
        &self.inner.tenancy
    }

    /// The duty.
    pub fn duty(&self) -> &DutyKey {
        &self.hold().duty
    }

    /// The epoch of the hold: hand it on with every effect, and let the resource refuse what comes
    /// with an older one (R11).
    pub fn epoch(&self) -> Epoch {
        self.hold().epoch
    }

    /// Returns the holder: this process.
    pub fn instance(&self) -> &InstanceId {
        &self.hold().instance
    }

    /// The hold as the store granted it.
    pub fn hold(&self) -> &Hold {
        &self.inner.tenancy.hold
    }

    /// Whether an effect may begin now, and how much time is left for it. Ask before **each**
    /// effect: it costs a look at a clock, and is right also when this thread was stopped and
    /// nobody could tell it anything.
    pub fn check(&self) -> Result<Duration, HoldLost> {
        self.inner.tenancy.left()
    }

    /// Whether a call that may take up to `needed` can begin now and end in time, with the margin
    /// of the TTL to spare.
    pub fn check_for(&self, needed: Duration) -> Result<(), HoldLost> {
        let needed = needed.saturating_add(self.inner.tenancy.margin);
        if self.check()? > needed { Ok(()) } else { Err(HoldLost::Deadline) }
    }

    /// Asks the store whether the hold stands, and extends it there: for groups whose keys others
    /// may change by themselves. What does not stand is lost at once. An answer that does not come
    /// within a tenth of the TTL tells nothing: until the deadline nobody else can have the duty.
    pub async fn verify(&self) -> Result<(), HoldLost> {
        let (session, hold) = (self.inner.tenancy.session.clone(), self.hold().clone());
        let asked = self.inner.desk.store.ask(move |store| async move {
            let within = session.ttl.attempt_timeout();
            let asked = store.keep_alive(&session, None, std::slice::from_ref(&hold));
            Ok(tokio::time::timeout(within, asked).await.ok().and_then(Result::ok))
        });
        let gone = match asked.await {
            Ok(Some(KeptAlive::Kept { holds, .. })) => holds.first() == Some(&HoldFate::Lost),
            Ok(Some(KeptAlive::Ended)) => true,
            Ok(None) | Err(_) => false,
        };
        if gone && self.inner.tenancy.lose() {
            self.send(|_, _| DriverCommand::Doubted);
        }
        self.check().map(|_| ())
    }

    /// The first instant at which no effect is allowed any more, as it stands now.
    pub fn deadline(&self) -> LocalInstant {
        self.inner.tenancy.deadline()
    }

    /// Whether the work was asked to come to its end.
    pub fn draining(&self) -> bool {
        self.inner.tenancy.is_draining()
    }

    /// Waits until the work is asked to come to its end, or the hold is lost.
    pub async fn stopping(&self) {
        self.until(|standing| standing.draining || standing.lost).await;
    }

    /// Waits until the hold is lost: revoked, or its deadline has passed. What was begun is to be
    /// given up at once. It watches the clock itself, so it ends in time also when the thread that
    /// renews does not come to telling it.
    pub async fn lost(&self) {
        self.until(|standing| standing.lost).await;
    }

    /// Waits until the store has confirmed the hold after a pause; an error when it is lost.
    pub async fn confirmed(&self) -> Result<(), HoldLost> {
        self.until(|standing| standing.lost || !standing.suspended).await;
        self.check().map(|_| ())
    }

    /// Waits until it stands so, or until the deadline has passed.
    async fn until(&self, so: impl Fn(&HoldStatus) -> bool) {
        let mut changes = self.changes();
        while !so(&changes.borrow_and_update()) && self.check() != Err(HoldLost::Deadline) {
            tokio::select! {
                // The tenancy has the sender, and this guard has the tenancy: it cannot close.
                _ = changes.changed() => {}
                () = self.inner.tenancy.passed() => {}
            }
        }
    }

    /// Deadline and state as they change, for those who show them to others.
    pub fn changes(&self) -> watch::Receiver<HoldStatus> {
        self.inner.tenancy.changes()
    }

    /// Reports progress of the work; see [`crate::Join::progress`]. Cheap: call it as often as you
    /// like.
    pub fn progress(&self) {
        if self.inner.tenancy.note_progress() {
            self.send(|duty, epoch| DriverCommand::Progress { duty, epoch });
        }
    }

    /// Reports that a resource refused an effect of this hold because it has seen `newest`. No
    /// effect is allowed any more; the duty is claimed again, above that epoch.
    pub fn fenced(&self, newest: Epoch) {
        self.inner.desk.observer.fenced(&self.duty().group, &self.duty().id);
        if self.inner.tenancy.lose() {
            self.send(|duty, epoch| DriverCommand::Fenced { duty, epoch, newest });
        }
    }

    /// Reports that the work has ended and nothing of it still runs, even if other handles exist.
    /// Only the first call counts.
    pub fn finished(&self, how: WorkOutcome) {
        self.inner.finished(how);
    }

    fn send(&self, command: impl FnOnce(DutyId, Epoch) -> DriverCommand) {
        self.inner.send(command);
    }

    /// The newest checkpoint of the duty.
    pub async fn load(&self) -> Result<Option<Checkpoint>, StoreError> {
        let mut version = self.inner.version.lock().await;
        self.read(&mut version).await
    }

    async fn read(&self, version: &mut Option<Version>) -> Result<Option<Checkpoint>, StoreError> {
        let duty = self.duty().clone();
        let loaded = self
            .inner
            .desk
            .store
            .ask(move |store| async move { Ok(store.load(&[duty]).await?.pop().flatten()) });
        let checkpoint = loaded.await?;
        *version = Some(checkpoint.as_ref().map_or(Version::ZERO, |found| found.version));
        Ok(checkpoint)
    }

    /// Stores a checkpoint over the newest one. [`Code::Fenced`]: the hold does not stand any more,
    /// stop. After an error that may have happened the next commit finds out whether it did.
    ///
    /// It goes over the connections of the membership, which renew too. Who commits thousands of
    /// checkpoints a second opens a store of its own.
    pub async fn commit(&self, document: Document) -> Result<Version, StoreError> {
        // One at a time: each replaces the version that the one before has written.
        let mut version = self.inner.version.lock().await;
        for _ in 0..3 {
            self.check()?;
            let expected = match *version {
                Some(version) => version,
                None => self.read(&mut version).await?.map_or(Version::ZERO, |last| last.version),
            };
            // Until the answer is there nobody knows what is stored.
            *version = None;
            let commit = Commit { hold: self.hold().clone(), expected, document: document.clone() };
            let session = self.inner.tenancy.session.clone();
            let answer = self.inner.desk.store.ask(move |store| async move {
                Ok(store.commit(&session, &[commit]).await?.pop())
            });
            match answer.await? {
                Some(Committed::Saved(saved)) => {
                    *version = Some(saved);
                    return Ok(saved);
                }
                Some(Committed::Fenced { newest }) => return Err(self.refused(newest)),
                Some(Committed::Conflict { .. }) => {
                    // A write of this very hold may have arrived after its answer was given up.
                    let found = self.read(&mut version).await?;
                    let newest = found.as_ref().map_or(Epoch::ZERO, |found| found.epoch);
                    let own = found.is_some_and(|found| {
                        found.epoch == self.epoch() && found.instance == *self.instance()
                    });
                    if !own {
                        return Err(self.refused(newest));
                    }
                }
                None => break,
            }
        }
        Err(StoreError::unknown(Code::Failed, "the checkpoint changes while it is written"))
    }

    /// The store itself refused: this hold is over, whatever was said before.
    fn refused(&self, newest: Epoch) -> StoreError {
        self.inner.desk.observer.fenced(&self.duty().group, &self.duty().id);
        self.inner.tenancy.lose();
        let epoch = self.epoch();
        let detail = format!("{} under epoch {epoch}, the newest is {newest}", self.duty());
        StoreError::Refused(Problem::new(Code::Fenced, detail))
    }
}

impl GuardInner {
    fn finished(&self, how: WorkOutcome) {
        if !self.told.swap(true, Ordering::AcqRel) {
            self.tenancy.lose();
            self.send(|duty, epoch| DriverCommand::Stopped { duty, epoch, how });
        }
    }

    fn send(&self, command: impl FnOnce(DutyId, Epoch) -> DriverCommand) {
        let hold = &self.tenancy.hold;
        // A driver that is gone has nothing more to learn.
        let _ = self.desk.commands.send(command(hold.duty.id.clone(), hold.epoch));
    }
}

impl Drop for GuardInner {
    fn drop(&mut self) {
        let asked = self.tenancy.is_draining() || self.tenancy.is_lost();
        self.finished(match asked {
            _ if std::thread::panicking() => WorkOutcome::Failed,
            true => WorkOutcome::Asked,
            false => WorkOutcome::Done,
        });
    }
}

#[cfg(test)]
mod tests;
