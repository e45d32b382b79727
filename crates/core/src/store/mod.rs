//! Store trait and its contract.

mod answer;
mod request;

use std::fmt::Debug;

use async_trait::async_trait;

use crate::guarantee::Survey;
use crate::{
    Document, DutyKey, GroupName, Hold, InstanceId, Note, Reason, Session, StoreError, Version,
};

pub use answer::{
    Abilities, Adopted, AuditEntry, AuditKind, Checkpoint, Claimed, Closed, Committed,
    CurrentHolder, DutyReport, Evicted, Forgotten, GroupDocument, HoldFate, Holder, KeptAlive,
    Member, Opened, Released, Replaced, Reported, Retention, view_hash,
};
pub use request::{
    Adopt, AuditRange, ClaimRequest, Commit, Evict, MAX_BATCH, OpenSession, Report, check,
};

/// Storage of sessions, holds and checkpoints.
///
/// # Contract
///
/// One conformance suite checks these sentences for every backend and every wrapper.
///
/// **Sessions**
/// 1. A session belongs to one group and one instance. While it lives, the same instance cannot
///    open another one there ([`Opened::Taken`]).
/// 2. Opening again with the nonce of the live session succeeds, so that a lost reply does not lock
///    an instance out (R17). The nonce of a session that ended is spent ([`Opened::Spent`]): an
///    ended session never comes back (R9). The store remembers the nonce for a week of its wall
///    clock.
/// 3. A session ends when it is closed, evicted *now*, or not kept alive for its TTL. Only the
///    store's clock judges that, inside the same atomic step that acts on it (R4).
/// 4. Live sessions, and no others, are the members of a group; each carries its newest note.
///
/// **Holds**
///
/// 5. A duty has at most one live hold. A hold is live while its session lives and nobody has
///    released, closed or evicted it.
/// 6. Each grant has an epoch larger than every earlier epoch of that duty, the floor in the
///    [`ClaimRequest`], and the epoch of the duty's checkpoint. Epochs survive release, expiry and
///    restarts of the store, and are never deleted (R2).
/// 7. Losing a race is [`Claimed::HeldBy`], not an error. Claiming a duty that this session already
///    holds returns [`Claimed::Already`] with the same epoch (R17).
/// 8. `keep_alive` extends the session and returns the fate of each hold given. It never revives
///    an ended hold: an expired one must be claimed again, under a new epoch (R9). Name every hold:
///    where holds have TTLs of their own, a hold that is not named ends at its TTL.
/// 9. `release` frees a hold only for its own session and epoch; repeating it changes nothing
///    (R10). `close_session` frees all holds of the session.
/// 10. After `evict`, the instance can neither keep alive nor open again, for at least a week. Its
///     holds end at their TTL, or at once with [`Evict::Now`], which also fences its running
///     writes.
///
/// **Checkpoints**
///
/// 11. `commit` stores a document only under a live hold with the newest epoch
///     ([`Committed::Fenced`] otherwise) and only over the expected version
///     ([`Committed::Conflict`] otherwise). The check and the write are one atomic step; a refused
///     commit changes nothing (R9, R14).
/// 12. Checkpoints have no TTL. They outlive holds, sessions and restarts of a durable store.
/// 13. The last [`Abilities::history_slots`] documents stay readable, newest first.
/// 14. After an unknown outcome, `load` returns epoch, version and instance of the stored
///     checkpoint, so that the caller can recognise its own write (R17).
///
/// **Groups**
///
/// 15. A group has one document with a version; replacing it compares that version.
/// 16. `watch` gives a hint after a session opened or ended, a note changed, a duty was granted or
///     freed, or the group document was replaced. A hint may be late, repeated or spurious. It may
///     be missed only while the connection is down, and then one hint follows. An expiry causes no
///     hint.
/// 17. Grants, losses, releases and evictions are recorded with their reason; the records of one
///     duty are in the order in which they happened (R24). Simultaneous records of different duties
///     may appear a moment after records with larger numbers. Commits are recorded by the history.
///
/// **All calls**
///
/// 18. Batches return one result per item, in order. Items of one batch up to
///     [`Abilities::atomic_batch`] take effect together. A request outside the limits is refused
///     before anything is sent ([`crate::Code::BadInput`]).
/// 19. [`StoreError::Refused`]: nothing was changed. [`StoreError::Unknown`]: it may have
///     happened. A backend that is not sure returns `Unknown`.
/// 20. Every call ends: with a response, or with an error after a bounded time. Dropping a call's
///     future is safe, but a request already sent may still take effect.
/// 21. A store that notices that it lost its state (flushed, restarted empty) returns
///     [`crate::Code::Reset`], or [`KeptAlive::Ended`] from `keep_alive`. All earlier holds are
///     lost, and no earlier epoch is granted again.
///
/// **Housekeeping**
///
/// 22. `forget` removes a duty that nobody holds: hold, checkpoint, history and report. It raises
///     the floor of the group to the duty's epoch. All later grants in the group are above the
///     floor, so a forgotten duty never comes back under an old epoch (R2).
/// 23. `adopt` ends every session and every hold, gives the store a new incarnation, and raises the
///     floor of the whole store: from then on every grant, in new groups too, is above every epoch
///     that the store can find and above the given floor. Checkpoints stay.
/// 24. `retain` sets how much history and audit the store keeps, for all processes that open it.
///     `survey` reads the store's own settings and changes nothing; unreadable ones are `None`.
///
/// **Reports**
///
/// 25. A duty has at most one report, the newest: a small document on how its work goes. `report`
///     stores it only under a live hold with the newest epoch ([`Reported::Fenced`] otherwise), in
///     one atomic step with the check (R9). It replaces those with an older epoch, and with a
///     smaller number under the same epoch: an attempt that takes effect late, after the reports
///     that followed, changes nothing (R17).
/// 26. Reports have no TTL, no history, and no part in the checkpoint: neither ever changes the
///     other. They outlive holds, sessions, `adopt`, and restarts of a durable store; `forget`
///     removes them. They cause no hint and no record in the audit trail.
/// 27. `wall_clock` is the clock that writes the times shown to people. It never judges expiry.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Returns the abilities of this backend; the conformance suite verifies them.
    fn abilities(&self) -> Abilities;

    /// Makes an instance a member of a group.
    async fn open_session(&self, open: &OpenSession) -> Result<Opened, StoreError>;

    /// Ends a session and frees its holds.
    async fn close_session(&self, session: &Session, reason: &Reason)
    -> Result<Closed, StoreError>;

    /// Extends a session by its TTL, replaces its note if one is given, and returns the fate of
    /// each hold. One round trip for any number of holds, where the store allows it (R8).
    async fn keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> Result<KeptAlive, StoreError>;

    /// Claims duties.
    async fn claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> Result<Vec<Claimed>, StoreError>;

    /// Releases holds.
    async fn release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> Result<Vec<Released>, StoreError>;

    /// Evicts an instance from a group.
    async fn evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> Result<Evicted, StoreError>;

    /// Lists the groups that have a session, a duty or a document, by name.
    async fn groups(&self) -> Result<Vec<GroupName>, StoreError>;

    /// Lists the members of a group, by instance id.
    async fn members(&self, group: &GroupName) -> Result<Vec<Member>, StoreError>;

    /// Lists the duties of a group that were ever granted, by id, with their holders.
    async fn holders(&self, group: &GroupName) -> Result<Vec<Holder>, StoreError>;

    /// Loads the newest checkpoint of each duty.
    async fn load(&self, duties: &[DutyKey]) -> Result<Vec<Option<Checkpoint>>, StoreError>;

    /// Stores checkpoints under holds of one session.
    async fn commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> Result<Vec<Committed>, StoreError>;

    /// Stores reports under holds of one session; each replaces the duty's previous one.
    async fn report(
        &self,
        session: &Session,
        reports: &[Report],
    ) -> Result<Vec<Reported>, StoreError>;

    /// Loads the newest report on each duty.
    async fn reports(&self, duties: &[DutyKey]) -> Result<Vec<Option<DutyReport>>, StoreError>;

    /// Lists the stored checkpoints of a duty, newest first.
    async fn history(&self, duty: &DutyKey) -> Result<Vec<Checkpoint>, StoreError>;

    /// Returns the group's document; version zero and empty when there is none.
    async fn group_document(&self, group: &GroupName) -> Result<GroupDocument, StoreError>;

    /// Replaces the group's document if its version is still `expected`.
    async fn replace_group_document(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> Result<Replaced, StoreError>;

    /// Watches a group: every change after this call returns causes a hint.
    async fn watch(&self, group: &GroupName) -> Result<Box<dyn Watch>, StoreError>;

    /// Reads the audit trail of a group, oldest first.
    async fn audit(
        &self,
        group: &GroupName,
        range: AuditRange,
    ) -> Result<Vec<AuditEntry>, StoreError>;

    /// Forgets duties that are gone for good.
    async fn forget(
        &self,
        duties: &[DutyKey],
        reason: &Reason,
    ) -> Result<Vec<Forgotten>, StoreError>;

    /// Adopts the store after it was restored or has lost data.
    async fn adopt(&self, adopt: &Adopt) -> Result<Adopted, StoreError>;

    /// Changes the retention settings.
    async fn retain(&self, retention: Retention) -> Result<(), StoreError>;

    /// Returns the current retention settings.
    async fn retention(&self) -> Result<Retention, StoreError>;

    /// Reads the live settings that determine the store's guarantee.
    async fn survey(&self) -> Result<Survey, StoreError>;

    /// Returns the store's wall clock in milliseconds since 1970; `None` if it has none that can be
    /// read.
    async fn wall_clock(&self) -> Result<Option<u64>, StoreError>;
}

/// Source of hints that a group changed.
#[async_trait]
pub trait Watch: Debug + Send {
    /// Waits for the next hint. Reading the group again is always the right reaction. An error
    /// means that hints may have been missed; calling again continues.
    async fn changed(&mut self) -> Result<(), StoreError>;
}
