//! Guard of a duty: the handle with which user code acts while the hold is valid.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::engine::{EngineEvent, WorkOutcome};
use tenure_core::store::{
    Checkpoint, Commit, Committed, DutyReport, HoldFate, KeptAlive, Report, Reported,
};
use tenure_core::{
    Code, Document, DutyId, DutyKey, Epoch, Hold, InstanceId, LocalInstant, Store, StoreError,
    Version,
};
use tokio::sync::{Mutex, watch};

use crate::hold_state::{DriverHandle, HoldState, HoldStatus};
use crate::report::{next_number, report_of};

/// The right to one duty. Keep it, or a clone, while you work: the duty is given back when the last
/// one is dropped or [`Guard::finished`] is called.
#[derive(Clone, Debug)]
pub struct Guard {
    inner: Arc<GuardInner>,
}

#[derive(Debug)]
struct GuardInner {
    state: Arc<HoldState>,
    handle: DriverHandle,
    /// The version that a commit replaces; `None` before anything was read.
    version: Mutex<Option<Version>>,
    finished: AtomicBool,
}

/// Outcome of [`Guard::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// Stored durably under this version.
    Stored(Version),
    /// Another version is stored. Nothing was changed.
    Conflict {
        /// Version that is stored; [`Version::ZERO`] if there is no checkpoint.
        newest: Version,
    },
}

/// Attempts of one write: the first, one after a lost response, and one for bad luck.
const MAX_PUT_ATTEMPTS: u32 = 3;

/// Reason why no effect is allowed under a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldLost {
    /// The hold has ended: stop.
    #[error("the hold has ended")]
    Revoked,
    /// The deadline has passed, or comes before the effect would be done: stop.
    #[error("the hold's deadline has passed or is too close")]
    Deadline,
    /// The process was paused, and the store has not confirmed the hold since. The hold may still
    /// be valid: wait for [`Guard::confirmed`], or stop.
    #[error("the hold has not been confirmed since the process was paused")]
    Unconfirmed,
}

impl From<HoldLost> for StoreError {
    fn from(lost: HoldLost) -> Self {
        Self::refused(Code::Fenced, lost.to_string())
    }
}

impl Guard {
    pub(crate) fn new(state: Arc<HoldState>, handle: DriverHandle) -> Self {
        let inner = GuardInner {
            state,
            handle,
            version: Mutex::new(None),
            finished: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn state(&self) -> &Arc<HoldState> {
        &self.inner.state
    }

    /// The duty.
    pub fn duty(&self) -> &DutyKey {
        &self.hold().duty
    }

    /// The epoch of the hold: send it with every effect, so that the resource can refuse older ones
    /// (R11).
    pub fn epoch(&self) -> Epoch {
        self.hold().epoch
    }

    /// Returns the holder: this process.
    pub fn instance(&self) -> &InstanceId {
        &self.hold().instance
    }

    /// The hold as the store granted it.
    pub fn hold(&self) -> &Hold {
        &self.inner.state.hold
    }

    /// Returns the time left for an effect that begins now. Call it before **each** effect: it only
    /// reads a clock, and is right even if this thread was stopped.
    pub fn check(&self) -> Result<Duration, HoldLost> {
        self.inner.state.left()
    }

    /// Whether the hold has ended for good, or its deadline has passed.
    pub fn is_over(&self) -> bool {
        matches!(self.check(), Err(HoldLost::Revoked | HoldLost::Deadline))
    }

    /// Whether a call that takes up to `needed` can begin now and end a margin before the deadline.
    pub fn check_for(&self, needed: Duration) -> Result<(), HoldLost> {
        let needed = needed.saturating_add(self.inner.state.margin);
        if self.check()? > needed { Ok(()) } else { Err(HoldLost::Deadline) }
    }

    /// Renews the hold in the store, for groups whose keys others may change. If the store does not
    /// have the hold, it is lost at once. If there is no response within a tenth of the TTL, the
    /// hold remains: until the deadline no other instance can have the duty.
    pub async fn verify(&self) -> Result<(), HoldLost> {
        let (session, hold) = (self.inner.state.session.clone(), self.hold().clone());
        let kept = self.inner.handle.store.call(move |store| async move {
            let within = session.ttl.attempt_timeout();
            let kept = store.keep_alive(&session, None, std::slice::from_ref(&hold));
            Ok(tokio::time::timeout(within, kept).await.ok().and_then(Result::ok))
        });
        let gone = match kept.await {
            Ok(Some(KeptAlive::Kept { holds, .. })) => holds.first() == Some(&HoldFate::Lost),
            Ok(Some(KeptAlive::Ended)) => true,
            Ok(None) | Err(_) => false,
        };
        if gone && self.inner.state.lose() {
            self.inner.handle.send(EngineEvent::Doubted);
        }
        self.check().map(|_| ())
    }

    /// Returns the first instant at which effects are not allowed, unless the hold is renewed.
    pub fn deadline(&self) -> LocalInstant {
        self.inner.state.deadline()
    }

    /// Whether the work was asked to end.
    pub fn draining(&self) -> bool {
        self.inner.state.is_draining()
    }

    /// Waits until the work is asked to end, or the hold is lost.
    pub async fn stopping(&self) {
        self.until(|status| status.draining || status.lost).await;
    }

    /// Waits until the hold is lost: revoked, or its deadline has passed. It watches the clock
    /// itself, so it ends in time even if the thread that renews is stuck.
    pub async fn lost(&self) {
        self.until(|status| status.lost).await;
    }

    /// Waits until the store has confirmed the hold after a pause; an error when it is lost.
    pub async fn confirmed(&self) -> Result<(), HoldLost> {
        self.until(|status| status.lost || !status.suspended).await;
        self.check().map(|_| ())
    }

    /// Waits for a status, or until the deadline has passed.
    async fn until(&self, so: impl Fn(&HoldStatus) -> bool) {
        let mut changes = self.changes();
        while !so(&changes.borrow_and_update()) && self.check() != Err(HoldLost::Deadline) {
            tokio::select! {
                // It cannot close: this guard keeps the sender.
                _ = changes.changed() => {}
                () = self.inner.state.passed() => {}
            }
        }
    }

    /// Returns a receiver of the hold's status changes.
    pub fn changes(&self) -> watch::Receiver<HoldStatus> {
        self.inner.state.changes()
    }

    /// Reports progress of the work; see [`crate::Join::progress`]. Cheap.
    pub fn progress(&self) {
        if self.inner.state.note_progress() {
            self.inner.send(|duty, epoch| EngineEvent::Progress { duty, epoch });
        }
    }

    /// Reports that a resource refused an effect of this hold because it has seen `newest`. No
    /// effect is allowed any more; the duty is claimed again, above that epoch.
    pub fn fenced(&self, newest: Epoch) {
        if self.lose_to_fence() {
            self.inner.send(|duty, epoch| EngineEvent::Fenced { duty, epoch, newest });
        }
    }

    /// Reports that the work has ended and nothing of it still runs, even if other handles exist.
    /// Only the first call counts.
    pub fn finished(&self, how: WorkOutcome) {
        self.inner.finished(how);
    }

    fn lose_to_fence(&self) -> bool {
        self.inner.handle.observer.fenced(&self.duty().group, &self.duty().id);
        self.inner.state.lose()
    }

    /// Loads the newest checkpoint of the duty.
    pub async fn load(&self) -> Result<Option<Checkpoint>, StoreError> {
        let mut version = self.inner.version.lock().await;
        self.read(&mut version).await
    }

    async fn read(&self, version: &mut Option<Version>) -> Result<Option<Checkpoint>, StoreError> {
        let duty = self.duty().clone();
        let load = |store: Arc<dyn Store>| async move { store.load(&[duty]).await };
        let checkpoint = self.inner.handle.store.call(load).await?.pop().flatten();
        *version = Some(checkpoint.as_ref().map_or(Version::ZERO, |found| found.version));
        Ok(checkpoint)
    }

    /// Stores a checkpoint over the newest one. [`Code::Fenced`] means that the hold is no longer
    /// valid: stop. After an unknown outcome the next commit determines what happened.
    ///
    /// It uses the connections that renew. To commit thousands of checkpoints a second, open a
    /// store of your own.
    pub async fn commit(&self, document: Document) -> Result<Version, StoreError> {
        match self.put(document, None).await? {
            PutOutcome::Stored(version) => Ok(version),
            // Only a version that the caller names can be the wrong one.
            PutOutcome::Conflict { .. } => Err(kept_changing()),
        }
    }

    /// Stores a checkpoint over version `over`, [`Version::ZERO`] for none; without a version, over
    /// the newest one. If the response is lost, it reads what is stored: the error is unknown only
    /// when that fails, too. Storing the same document over the same version again changes nothing.
    pub async fn put(
        &self,
        document: Document,
        over: Option<Version>,
    ) -> Result<PutOutcome, StoreError> {
        // One commit at a time: each replaces the version that the previous one has written.
        let mut newest = self.inner.version.lock().await;
        let result = self.write(&document, over, &mut newest).await;
        self.inner.handle.observer.committed(self.hold(), &result);
        result
    }

    async fn write(
        &self,
        document: &Document,
        over: Option<Version>,
        newest: &mut Option<Version>,
    ) -> Result<PutOutcome, StoreError> {
        let mut unknown = None;
        for _ in 0..MAX_PUT_ATTEMPTS {
            match self.try_put(document, over, newest).await {
                Ok(Some(outcome)) => return Ok(outcome),
                Ok(None) => {}
                Err(error) if error.is_unknown() => unknown = Some(error),
                // What was sent before it may still have happened.
                Err(error) => return Err(unknown.unwrap_or(error)),
            }
        }
        Err(unknown.unwrap_or_else(kept_changing))
    }

    /// Tries once; `None` to try again, over what is stored now.
    async fn try_put(
        &self,
        document: &Document,
        over: Option<Version>,
        newest: &mut Option<Version>,
    ) -> Result<Option<PutOutcome>, StoreError> {
        self.check()?;
        let expected = match (over, *newest) {
            (Some(version), _) | (None, Some(version)) => version,
            (None, None) => self.read(newest).await?.map_or(Version::ZERO, |last| last.version),
        };
        // Unknown until the response has arrived.
        *newest = None;
        let (hold, session) = (self.hold().clone(), self.inner.state.session.clone());
        let commit = Commit { hold, expected, document: document.clone() };
        let committed =
            self.inner.handle.store.call(move |store| async move {
                Ok(store.commit(&session, &[commit]).await?.pop())
            });
        let lost = match committed.await {
            Ok(Some(Committed::Saved(saved))) => {
                *newest = Some(saved);
                return Ok(Some(PutOutcome::Stored(saved)));
            }
            Ok(Some(Committed::Fenced { newest })) => return Err(self.refused(newest)),
            Ok(Some(Committed::Conflict { .. }) | None) => None,
            Err(error) if error.is_unknown() => Some(error),
            Err(error) => return Err(error),
        };
        // A write of this hold may have arrived although its response did not.
        let found = match (self.read(newest).await, lost) {
            (Ok(found), _) => found,
            (Err(_), Some(lost)) => return Err(lost),
            (Err(error), None) => return Err(error),
        };
        let at = found.as_ref().map_or(Version::ZERO, |found| found.version);
        let own =
            |found: &Checkpoint| found.epoch == self.epoch() && found.instance == *self.instance();
        match found {
            Some(found)
                if own(&found) && found.document == *document && at == expected.next()? =>
            {
                Ok(Some(PutOutcome::Stored(at)))
            }
            // Not stored yet. A delayed write could still arrive: then one of the two is refused.
            _ if at == expected => Ok(None),
            // Under this hold only this hold can write.
            Some(found) if own(&found) && over.is_none() => Ok(None),
            Some(found) if found.epoch > self.epoch() => Err(self.refused(found.epoch)),
            found if over.is_none() => {
                Err(self.refused(found.map_or(Epoch::ZERO, |found| found.epoch)))
            }
            _ => Ok(Some(PutOutcome::Conflict { newest: at })),
        }
    }

    /// Stores a report on the duty, of at most [`Report::MAX_REPORT_BYTES`]; it replaces the one
    /// before, and leaves the checkpoint as it is. [`Code::Fenced`] means that the hold is no
    /// longer valid: stop. After a lost response it reads what is stored, and sends the report once
    /// more if that is an older one; an attempt that takes effect late changes nothing.
    pub async fn report(&self, document: Document) -> Result<(), StoreError> {
        let report = report_of(self, next_number(), document);
        let lost = match self.try_report(&report).await {
            Err(lost) if lost.is_unknown() => lost,
            settled => return settled,
        };
        match self.reported().await {
            Ok(Some(found)) if found.epoch == self.epoch() && found.number >= report.number => {
                Ok(())
            }
            Ok(_) => match self.try_report(&report).await {
                // The first attempt may still have happened.
                Err(StoreError::Refused(problem)) if problem.code != Code::Fenced => Err(lost),
                again => again,
            },
            Err(_) => Err(lost),
        }
    }

    async fn try_report(&self, report: &Report) -> Result<(), StoreError> {
        self.check()?;
        let (session, report) = (self.inner.state.session.clone(), report.clone());
        let stored =
            self.inner.handle.store.call(move |store| async move {
                Ok(store.report(&session, &[report]).await?.pop())
            });
        match stored.await? {
            Some(Reported::Stored) => Ok(()),
            Some(Reported::Fenced { newest }) => Err(self.refused(newest)),
            None => Err(StoreError::unknown(Code::Failed, "the store gave no outcome")),
        }
    }

    /// Loads the newest report on the duty, from any holder.
    pub async fn reported(&self) -> Result<Option<DutyReport>, StoreError> {
        let duty = self.duty().clone();
        let load = |store: Arc<dyn Store>| async move { store.reports(&[duty]).await };
        Ok(self.inner.handle.store.call(load).await?.pop().flatten())
    }

    /// Returns the store's wall clock in milliseconds since 1970; `None` if it has none that can
    /// be read.
    pub async fn wall_clock(&self) -> Result<Option<u64>, StoreError> {
        let read = |store: Arc<dyn Store>| async move { store.wall_clock().await };
        self.inner.handle.store.call(read).await
    }

    pub(crate) fn refused(&self, newest: Epoch) -> StoreError {
        self.lose_to_fence();
        let (duty, epoch) = (self.duty(), self.epoch());
        let detail = format!("{duty} under epoch {epoch}, the newest is {newest}");
        StoreError::refused(Code::Fenced, detail)
    }
}

fn kept_changing() -> StoreError {
    StoreError::unknown(Code::Failed, "the checkpoint kept changing during the write")
}

impl GuardInner {
    fn finished(&self, how: WorkOutcome) {
        if !self.finished.swap(true, Ordering::AcqRel) {
            self.state.lose();
            self.send(|duty, epoch| EngineEvent::Stopped { duty, epoch, how });
        }
    }

    fn send(&self, command: impl FnOnce(DutyId, Epoch) -> EngineEvent) {
        let hold = &self.state.hold;
        self.handle.send(command(hold.duty.id.clone(), hold.epoch));
    }
}

impl Drop for GuardInner {
    fn drop(&mut self) {
        let asked = self.state.is_draining() || self.state.is_lost();
        self.finished(match asked {
            _ if std::thread::panicking() => WorkOutcome::Failed,
            true => WorkOutcome::Asked,
            false => WorkOutcome::Done,
        });
    }
}

#[cfg(test)]
mod tests;
