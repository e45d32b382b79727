//! Responses of a store.

use std::time::Duration;

use crate::fnv::Fnv;
use crate::{
    Code, Document, DutyKey, Epoch, Hold, InstanceId, Mark, Nonce, Note, Session, StoreError,
    Version,
};

/// Abilities of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// The first epoch is 1 and each further grant adds exactly one.
    pub dense_epochs: bool,
    /// State survives the end of every process that uses it.
    pub durable: bool,
    /// Number of items of one call that take effect together.
    pub atomic_batch: usize,
    /// Number of checkpoints per duty that stay readable.
    pub history_slots: usize,
    /// Effects in a user's own transaction can be fenced by the same database (R12).
    pub exclusive_effects: bool,
    /// Several processes can open it at the same time.
    pub shared: bool,
}

/// Retention settings of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Number of checkpoints per duty that stay readable.
    pub history_slots: usize,
    /// Approximate number of audit entries kept; the backend says whether per group or in total.
    pub audit_kept: usize,
}

impl Retention {
    /// The largest number of checkpoints per duty.
    pub const MAX_SLOTS: usize = 1024;

    /// Rejects values that no store supports.
    pub fn check(self) -> Result<Self, StoreError> {
        let slots = (1..=Self::MAX_SLOTS).contains(&self.history_slots);
        let audit = (1_000..=100_000_000).contains(&self.audit_kept);
        if slots && audit {
            return Ok(self);
        }
        let history = format!("history must be 1 to {} checkpoints", Self::MAX_SLOTS);
        let detail = format!("{history}, and the audit trail 1000 to 100000000 entries");
        Err(StoreError::refused(Code::BadInput, detail))
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { history_slots: 32, audit_kept: 100_000 }
    }
}

/// Outcome of forgetting a duty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// The duty was removed; from now on the group grants only above this epoch.
    Forgotten {
        /// The floor of the group.
        floor: Epoch,
    },
    /// The duty is held. Nothing was changed.
    HeldBy(Option<CurrentHolder>),
    /// The duty does not exist.
    Absent,
}

/// Outcome of an adoption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The new identity of the store's content.
    pub incarnation: String,
    /// Live sessions that ended.
    pub sessions: u64,
    /// Number of duties in the store.
    pub duties: u64,
    /// No epoch up to this one will be granted again, in any group.
    pub floor: Epoch,
}

/// Outcome of opening a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Opened {
    /// The session is open.
    Open(Session),
    /// The instance has another live session in this group.
    Taken,
    /// The nonce belongs to a session that has ended.
    Spent,
    /// The instance was evicted from this group.
    Evicted,
}

/// Outcome of closing a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Closed {
    /// The session was open until now.
    Closed,
    /// The session had ended before.
    AlreadyEnded,
}

/// Outcome of a keep-alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeptAlive {
    /// The session is extended by a whole TTL.
    Kept {
        /// The new [`Hold::mark`] of each kept hold.
        mark: Mark,
        /// The fate of each hold given, in their order.
        holds: Vec<HoldFate>,
    },
    /// The session has ended, and every hold with it.
    Ended,
}

/// The fate of one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldFate {
    /// It is valid as long as the session.
    Kept,
    /// It is gone: stop at once.
    Lost,
    /// It was not checked: its previous deadline still applies.
    Unknown,
}

/// Current holder of a duty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CurrentHolder {
    /// The instance.
    pub instance: InstanceId,
    /// Remaining TTL.
    pub remaining: Duration,
}

/// Outcome of claiming a duty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Claimed {
    /// Granted under a new epoch.
    Granted(Hold),
    /// This session already holds it, under this epoch.
    Already(Hold),
    /// Another session holds it or is about to.
    HeldBy(Option<CurrentHolder>),
    /// The claiming session has ended.
    SessionEnded,
}

/// Outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// The duty is free now.
    Freed,
    /// This hold had ended before, and the duty was not granted again since.
    Already,
    /// The duty was granted to another session, or this hold was never granted.
    NotYours,
}

/// Outcome of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The instance is evicted.
    Evicted {
        /// Number of holds that ended at once; zero with `AtTtl`.
        ended: u64,
    },
    /// The instance has no live session; it is barred from opening one.
    NotAMember,
}

/// A live member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The instance.
    pub instance: InstanceId,
    /// Nonce of its session; `None` for a foreign member, which only shares the keys.
    pub nonce: Option<Nonce>,
    /// Its status.
    pub note: Note,
    /// Remaining TTL.
    pub remaining: Duration,
    /// Whether it was evicted and ends at its TTL.
    pub evicted: bool,
}

/// A duty and its holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The duty.
    pub duty: DutyKey,
    /// The newest epoch granted; `None` while a foreign member holds it, without an epoch.
    pub epoch: Option<Epoch>,
    /// The holder; `None` when the duty is free.
    pub holder: Option<CurrentHolder>,
}

/// A stored checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The number of writes so far.
    pub version: Version,
    /// The epoch under which it was written.
    pub epoch: Epoch,
    /// The writer.
    pub instance: InstanceId,
    /// The document.
    pub document: Document,
    /// The store's wall clock at the write, for display.
    pub unix_ms: u64,
}

/// Outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Stored durably under this version.
    Saved(Version),
    /// The hold is not valid: stop, and never retry. Nothing was changed.
    Fenced {
        /// The newest epoch granted for the duty.
        newest: Epoch,
    },
    /// The stored version differs. Nothing was changed.
    Conflict {
        /// The version that is stored.
        stored: Version,
    },
}

/// A stored report on a duty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyReport {
    /// The epoch under which it was written.
    pub epoch: Epoch,
    /// Its number among the reports under that epoch.
    pub number: u64,
    /// The writer.
    pub instance: InstanceId,
    /// The document.
    pub document: Document,
    /// The store's wall clock at the write.
    pub unix_ms: u64,
}

/// Outcome of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// This report, or a later one under the same hold, is stored; durably, if the store is durable.
    Stored,
    /// The hold is not valid: stop, and never retry. Nothing was changed.
    Fenced {
        /// The newest epoch granted for the duty.
        newest: Epoch,
    },
}

/// A group's document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupDocument {
    /// The number of replacements so far.
    pub version: Version,
    /// The document.
    pub document: Document,
}

/// Outcome of replacing a group's document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replaced {
    /// Stored under this version.
    Saved(Version),
    /// The stored version differs. Nothing was changed.
    Conflict {
        /// The version that is stored.
        stored: Version,
    },
}

crate::text_enum! {
    /// Kind of an audit entry.
    pub enum AuditKind {
        Joined "joined" "A session opened."
        Left "left" "A session was closed."
        Granted "granted" "A duty was granted under a new epoch."
        Expired "expired" "A claim found the previous hold expired."
        Released "released" "A hold was released."
        Evicted "evicted"
            "An instance was evicted; an entry with a duty means that its hold ended."
        Forgotten "forgotten" "A duty was forgotten; the instance is its last holder."
    }
}

/// One entry of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Sequence number, growing with every entry of the group.
    pub seq: u64,
    /// The store's wall clock, for display.
    pub unix_ms: u64,
    /// Kind of the entry.
    pub kind: AuditKind,
    /// The instance.
    pub instance: InstanceId,
    /// The duty; `None` for sessions.
    pub duty: Option<DutyKey>,
    /// The epoch; `None` for sessions.
    pub epoch: Option<Epoch>,
    /// The reason.
    pub reason: String,
}

/// Returns a number that is equal for two readers exactly when they saw the same members with the
/// same notes and the same holders (R20). Remaining times are ignored.
pub fn view_hash(members: &[Member], holders: &[Holder]) -> u64 {
    let mut hash = Fnv::new();
    for member in members {
        hash.field(b"m");
        hash.field(member.instance.as_str().as_bytes());
        hash.field(&member.nonce.map_or(0, Nonce::as_u128).to_le_bytes());
        hash.field(member.note.as_str().as_bytes());
        hash.field(&[u8::from(member.evicted)]);
    }
    for holder in holders {
        hash.field(b"h");
        hash.field(holder.duty.id.as_str().as_bytes());
        hash.field(&holder.epoch.map_or(0, Epoch::get).to_le_bytes());
        if let Some(now) = &holder.holder {
            hash.field(now.instance.as_str().as_bytes());
        }
    }
    hash.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(instance: &str, note: &str, remaining: u64) -> Member {
        Member {
            instance: InstanceId::new(instance).unwrap(),
            nonce: Some(Nonce::from_entropy(7)),
            note: Note::new(note).unwrap(),
            remaining: Duration::from_millis(remaining),
            evicted: false,
        }
    }

    #[test]
    fn a_view_hash_sees_what_matters_and_nothing_else() {
        let view = [member("a", "w=1", 10), member("b", "", 10)];
        let later = [member("a", "w=1", 5), member("b", "", 3)];
        assert_eq!(view_hash(&view, &[]), view_hash(&later, &[]));
        let moved = [member("a", "w=", 10), member("1b", "", 10)];
        assert_ne!(view_hash(&view, &[]), view_hash(&moved, &[]));
        let held = Holder {
            duty: DutyKey::new("g", "d").unwrap(),
            epoch: Epoch::new(3).ok(),
            holder: None,
        };
        assert_ne!(view_hash(&view, &[]), view_hash(&view, &[held]));
    }

    #[test]
    fn audit_words_round_trip() {
        for kind in [AuditKind::Joined, AuditKind::Granted, AuditKind::Forgotten] {
            assert_eq!(AuditKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(AuditKind::parse("other"), None);
    }
}
