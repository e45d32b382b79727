//! The store contract.

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
    CurrentHolder, Evicted, Forgotten, GroupDocument, HoldFate, Holder, KeptAlive, Member, Opened,
    Released, Replaced, Retention, view_hash,
};
pub use request::{Adopt, AuditRange, ClaimRequest, Commit, Evict, MAX_BATCH, OpenSession, check};

/// Storage of sessions, holds and checkpoints.
///
/// # Contract
///
/// Every backend and every wrapper keeps these sentences; one conformance suite proves them.
///
/// **Sessions**
/// 1. A session belongs to one group and one instance. While it lives, the same instance cannot
///    open another one there ([`Opened::Taken`]).
/// 2. Opening again with the nonce of the live session is the same opening: a lost reply does not
///    lock an instance out (R17). The nonce of a session that ended is spent
///    ([`Opened::Spent`]): what has ended never comes back (R9). It is remembered for a week
///    of the store's wall clock.
/// 3. A session ends when it is closed, evicted *now*, or not kept alive for its TTL. Only the
///    store's clock judges that, inside the same atomic step that acts on it (R4).
/// 4. Live sessions, and no others, are the members of a group; each carries its newest note.
///
/// **Holds**
///
/// 5. A duty has at most one live hold. A hold is live while its session lives and nobody has
///    released, closed or evicted it.
/// 6. Each grant has an epoch larger than every epoch granted for that duty before, than the
///    floor in the [`ClaimRequest`], and than the epoch of the duty's checkpoint. Epochs survive
///    release, expiry and restarts of the store, and are never deleted (R2).
/// 7. Losing a race is [`Claimed::HeldBy`], not an error. Claiming what this very session holds
///    answers [`Claimed::Already`] with the same epoch (R17).
/// 8. `keep_alive` extends the session and tells the fate of each hold given. It never revives
///    what has ended: an expired hold is claimed anew, under a new epoch (R9). Name every hold:
///    where holds have TTLs of their own, one that is not named ends when its TTL does.
/// 9. `release` frees a hold only for its own session and epoch; repeating it changes nothing
///    (R10). `close_session` frees all holds of the session.
/// 10. After `evict`, the instance can neither keep alive nor open again, for a week at least. Its
///     holds end at their TTL, or at once with [`Evict::Now`]: then also its running writes are
///     fenced.
///
/// **Checkpoints**
///
/// 11. `commit` stores a document only under a live hold with the newest epoch
///     ([`Committed::Fenced`] otherwise) and only over the expected version
///     ([`Committed::Conflict`] otherwise). The check and the write are one atomic step; a refused
///     commit changes nothing (R9, R14).
/// 12. Checkpoints have no TTL. They outlive holds, sessions and restarts of a durable store.
/// 13. The last [`Abilities::history_slots`] documents stay readable, newest first.
/// 14. After an unknown outcome, `load` shows epoch, version and instance of what is stored: the
///     caller can tell its own write (R17).
///
/// **Groups**
///
/// 15. A group has one document with a version; replacing it compares that version.
/// 16. `watch` gives a hint after a session opened or ended, a note changed, a duty was granted or
///     freed, or the group document was replaced. A hint may come late, twice, or for nothing; it
///     may be missed only while the connection is down, and then one hint follows. An expiry makes
///     no hint.
/// 17. Grants, losses, releases and evictions are recorded with their reason; the records of one
///     duty are in the order in which they happened (R24). Records of different duties that are
///     made at the same time may appear a moment after ones with larger numbers. Commits are
///     recorded by the history.
///
/// **All calls**
///
/// 18. Batches answer per item, in order. Items of one batch up to [`Abilities::atomic_batch`]
///     take effect together. What is outside the limits is refused before anything is sent
///     ([`crate::Code::BadInput`]).
/// 19. [`StoreError::Refused`]: nothing was changed. [`StoreError::Unknown`]: it may have
///     happened. A backend that is not sure says `Unknown`.
/// 20. Every call ends: with an answer, or with an error after a bounded time. Dropping a call's
///     future is safe; what was sent may still happen.
/// 21. A store that lost its state (flushed, restarted empty) and notices says so
///     ([`crate::Code::Reset`]), to `keep_alive` by [`KeptAlive::Ended`]; the holds of before are
///     lost, and no epoch of before is granted again.
///
/// **Housekeeping**
///
/// 22. `forget` removes a duty that nobody holds: hold, checkpoint and history. Its epoch goes into
///     a floor of its group, above which every later grant in that group is: what was forgotten
///     never comes back under an old epoch (R2).
/// 23. `adopt` ends every session and every hold, gives the store a new incarnation, and raises the
///     floor of the whole store: from then on every grant, in groups yet unknown too, is above
///     every epoch that the store can find and above the given floor. Checkpoints stay.
/// 24. `retain` says how much history and audit the store keeps; all who open it later keep to it.
///     `survey` reads the store's own settings and changes nothing; what it may not read is `None`.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Returns the abilities of this backend; the conformance suite verifies them.
    fn abilities(&self) -> Abilities;

    /// Makes an instance a member of a group.
    async fn open_session(&self, open: &OpenSession) -> Result<Opened, StoreError>;

    /// Ends a session and frees its holds.
    async fn close_session(&self, session: &Session, reason: &Reason)
    -> Result<Closed, StoreError>;

    /// Extends a session by its TTL, replaces its note if one is given, and tells which of the
    /// holds still stand. One round trip whatever their number, where the store can (R8).
    async fn keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> Result<KeptAlive, StoreError>;

    /// Asks for duties.
    async fn claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> Result<Vec<Claimed>, StoreError>;

    /// Gives holds back.
    async fn release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> Result<Vec<Released>, StoreError>;

    /// Puts an instance out of a group.
    async fn evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> Result<Evicted, StoreError>;

    /// The groups that have a session, a duty or a document, by name.
    async fn groups(&self) -> Result<Vec<GroupName>, StoreError>;

    /// The members of a group, by instance id.
    async fn members(&self, group: &GroupName) -> Result<Vec<Member>, StoreError>;

    /// The duties of a group that were ever granted, by id, with who holds them now.
    async fn holders(&self, group: &GroupName) -> Result<Vec<Holder>, StoreError>;

    /// The newest checkpoint of each duty.
    async fn load(&self, duties: &[DutyKey]) -> Result<Vec<Option<Checkpoint>>, StoreError>;

    /// Stores checkpoints under holds of one session.
    async fn commit(
        &self,
        session: &Session,
        commits: &[Commit],
    ) -> Result<Vec<Committed>, StoreError>;

    /// The checkpoints of a duty that are still in its ring, newest first.
    async fn history(&self, duty: &DutyKey) -> Result<Vec<Checkpoint>, StoreError>;

    /// The group's document; version zero and empty when there is none.
    async fn group_document(&self, group: &GroupName) -> Result<GroupDocument, StoreError>;

    /// Replaces the group's document if its version is still `expected`.
    async fn replace_group_document(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> Result<Replaced, StoreError>;

    /// Starts to listen for changes of a group. What changes after this returns makes a hint.
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

    /// Takes the store over after it was restored or has lost data.
    async fn adopt(&self, adopt: &Adopt) -> Result<Adopted, StoreError>;

    /// Changes how much of the past is kept.
    async fn retain(&self, retention: Retention) -> Result<(), StoreError>;

    /// Returns the current retention settings.
    async fn retention(&self) -> Result<Retention, StoreError>;

    /// Reads the live settings that decide what this store can promise.
    async fn survey(&self) -> Result<Survey, StoreError>;
}

/// Hints that a group changed.
#[async_trait]
pub trait Watch: Debug + Send {
    /// Waits for the next hint. Reading the group again is always the right answer to it.
    /// An error means that hints may have been missed; calling again goes on.
    async fn changed(&mut self) -> Result<(), StoreError>;
}
