//! Decisions about sessions and duties, shared by the stores in memory, in files and in SQLite.

use std::time::Duration;

use tenure_core::store::{Commit, Committed, CurrentHolder, Opened, Released, Reported};
use tenure_core::{
    DutyKey, Epoch, Hold, InstanceId, Mark, Mutant, Nonce, Session, StoreResult, Version,
};

/// Last grant of a duty.
pub(crate) struct LastGrant {
    pub(crate) epoch: Epoch,
    pub(crate) instance: InstanceId,
    pub(crate) nonce: Nonce,
    /// Whether it has not been released since.
    pub(crate) held: bool,
    /// Time left; `None` when it was released or its session has ended.
    pub(crate) remaining: Option<Duration>,
}

impl LastGrant {
    fn is(&self, hold: &Hold) -> bool {
        self.epoch == hold.epoch && self.nonce == hold.nonce
    }

    /// Whether this grant is the given hold and is live.
    pub(crate) fn stands(&self, hold: &Hold) -> bool {
        self.is(hold) && self.remaining.is_some()
    }

    /// The holder, if the grant is live.
    #[cfg(feature = "sqlite")]
    pub(crate) fn holder(self) -> Option<CurrentHolder> {
        Some(CurrentHolder { instance: self.instance, remaining: self.remaining? })
    }
}

/// Decision about opening a session of an instance that had one before.
pub(crate) enum OpenDecision {
    Answer(Opened),
    /// The same session is open: extend it.
    Extend,
    /// The earlier session has ended: a new one takes its row.
    Replace,
}

pub(crate) fn open(evicted: bool, live: bool, same_nonce: bool) -> OpenDecision {
    match (evicted, live, same_nonce) {
        (true, _, _) => OpenDecision::Answer(Opened::Evicted),
        (false, true, false) => OpenDecision::Answer(Opened::Taken),
        (false, true, true) => OpenDecision::Extend,
        (false, false, true) => OpenDecision::Answer(Opened::Spent),
        (false, false, false) => OpenDecision::Replace,
    }
}

/// Decision about a claim.
pub(crate) enum ClaimDecision {
    /// The session holds it already.
    Already(Epoch),
    HeldBy(CurrentHolder),
    /// `expired` is the hold that ended with its session, for the audit trail.
    Grant {
        epoch: Epoch,
        expired: Option<(InstanceId, Epoch)>,
    },
}

/// Decides a claim. The epoch of a grant is above that of the last one and above `known`.
pub(crate) fn claim(
    last: Option<LastGrant>,
    known: Epoch,
    session: &Session,
) -> StoreResult<ClaimDecision> {
    let newest = last.as_ref().map_or(Epoch::ZERO, |last| last.epoch).max(known);
    let mut expired = None;
    if let Some(LastGrant { epoch, instance, nonce, remaining, .. }) = last.filter(|it| it.held) {
        match remaining {
            Some(_) if nonce == session.nonce => return Ok(ClaimDecision::Already(epoch)),
            Some(remaining) => {
                return Ok(ClaimDecision::HeldBy(CurrentHolder { instance, remaining }));
            }
            None => expired = Some((instance, epoch)),
        }
    }
    let epoch = match Mutant::R2Same.is_on() && newest > Epoch::ZERO {
        true => newest,
        false => newest.next()?,
    };
    Ok(ClaimDecision::Grant { epoch, expired })
}

/// A hold of the session.
pub(crate) fn hold(session: &Session, duty: &DutyKey, epoch: Epoch, mark: Mark) -> Hold {
    let (instance, nonce) = (session.instance.clone(), session.nonce);
    Hold { duty: duty.clone(), epoch, instance, nonce, mark }
}

/// Decides a release.
pub(crate) fn release(last: Option<&LastGrant>, session: &Session, hold: &Hold) -> Released {
    let any_epoch = Mutant::R9Release.is_on();
    let is_it = |last: &&LastGrant| last.is(hold) || (any_epoch && last.nonce == hold.nonce);
    match last.filter(|last| hold.is_of(session) && is_it(last)) {
        None => Released::NotYours,
        Some(last) if last.remaining.is_some() => Released::Freed,
        Some(_) => Released::Already,
    }
}

/// Decides whether a write under a hold is allowed; if not, returns the newest epoch. `committed`
/// is the epoch of the newest checkpoint.
fn fence(
    last: Option<&LastGrant>,
    committed: Epoch,
    session: &Session,
    hold: &Hold,
) -> Result<(), Epoch> {
    let newest = last.map_or(Epoch::ZERO, |last| last.epoch).max(committed);
    let stands = hold.is_of(session) && last.is_some_and(|last| last.stands(hold));
    if stands && newest == hold.epoch { Ok(()) } else { Err(newest) }
}

/// Decides a report.
pub(crate) fn report(
    last: Option<&LastGrant>,
    committed: Epoch,
    session: &Session,
    hold: &Hold,
) -> Reported {
    match fence(last, committed, session, hold) {
        Ok(()) => Reported::Stored,
        Err(_) if Mutant::R9Report.is_on() => Reported::Stored,
        Err(newest) => Reported::Fenced { newest },
    }
}

/// Decides a commit; `stored` is the version and epoch of the newest checkpoint.
pub(crate) fn commit(
    last: Option<&LastGrant>,
    stored: (Version, Epoch),
    session: &Session,
    commit: &Commit,
) -> StoreResult<Committed> {
    let hold = &commit.hold;
    let (stored, committed) = stored;
    match fence(last, committed, session, hold) {
        Err(newest) if !Mutant::R14Fence.is_on() => return Ok(Committed::Fenced { newest }),
        _ => {}
    }
    if stored != commit.expected && !Mutant::R14Version.is_on() {
        return Ok(Committed::Conflict { stored });
    }
    let before = match Mutant::R14Back.is_on() && hold.epoch > committed {
        true => Version::ZERO,
        false => stored,
    };
    Ok(Committed::Saved(before.next()?))
}
