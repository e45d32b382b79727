//! Sessions, and holds granted by the store.

use crate::{DutyKey, Epoch, GroupName, InstanceId, Nonce, Ttl};

/// An instance's liveness in one group: one record with a TTL in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
// Why: docs/decisions/0001-session-belongs-to-one-group.md
pub struct Session {
    /// The group that the instance is a member of.
    pub group: GroupName,
    /// The instance.
    pub instance: InstanceId,
    /// Generated for this session only: a session that ended never comes back (R3, R9).
    pub nonce: Nonce,
    /// Lease duration.
    pub ttl: Ttl,
}

/// Number of holds that the session had lost when this hold was last confirmed.
///
/// While the number is unchanged no hold was lost, so a store that counts can confirm any number of
/// holds by reading one row. A stale mark costs a lookup of the hold, never a wrong answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(pub u64);

impl Mark {
    /// Returns the start value of a session's count. It differs per session, so that a mark of
    /// another session does not match by accident.
    pub const fn first(nonce: Nonce) -> Self {
        Self(nonce.as_u128() as u64 >> 32)
    }
}

/// The right to a duty: granted by the store under an epoch, bound to a session (R1).
///
/// Create it only from the response of a [`crate::Store`] to `claim`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The duty.
    pub duty: DutyKey,
    /// The epoch of this grant; with `instance` it is the fence (R11).
    pub epoch: Epoch,
    /// The holder.
    pub instance: InstanceId,
    /// Nonce of the session that it ends with.
    pub nonce: Nonce,
    /// See [`Mark`].
    pub mark: Mark,
}

impl Hold {
    /// Returns the mark that all of these holds share, if all belong to that session.
    pub fn common_mark(holds: &[Self], session: &Session) -> Option<Mark> {
        let mark = holds.first()?.mark;
        holds.iter().all(|hold| hold.mark == mark && hold.is_of(session)).then_some(mark)
    }

    /// Whether this hold was granted to that session.
    pub fn is_of(&self, session: &Session) -> bool {
        self.nonce == session.nonce
            && self.instance == session.instance
            && self.duty.group == session.group
    }
}
