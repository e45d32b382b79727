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
    /// Up to so many items of one call take effect together.
    pub atomic_batch: usize,
    /// Number of checkpoints of a duty that stay readable.
    pub history_slots: usize,
    /// Effects in a user's own transaction can be fenced by the same database (R12).
    pub exclusive_effects: bool,
    /// Several processes can have it open at the same time.
    pub shared: bool,
}

/// Retention settings of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Number of checkpoints of a duty that stay readable.
    pub history_slots: usize,
    /// Approximate number of audit entries kept; the backend says whether per group or in total.
    pub audit_kept: usize,
}

impl Retention {
    /// The most history that can be asked for.
    pub const MAX_SLOTS: usize = 1024;

    /// Refuses what no store can keep.
    pub fn check(self) -> Result<Self, StoreError> {
        let slots = (1..=Self::MAX_SLOTS).contains(&self.history_slots);
        let audit = (1_000..=100_000_000).contains(&self.audit_kept);
        if slots && audit {
            return Ok(self);
        }
        let history = format!("history is 1 to {} checkpoints", Self::MAX_SLOTS);
        let detail = format!("{history}, the audit trail 1000 to 100000000 entries");
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
    /// Its rows are gone; the group grants only above this epoch from now on.
    Forgotten {
        /// The floor of the group.
        floor: Epoch,
    },
    /// Somebody holds it. Nothing was changed.
    HeldBy(Option<CurrentHolder>),
    /// There was nothing to forget.
    Absent,
}

/// Outcome of an adoption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Names the store from now on.
    pub incarnation: String,
    /// Live sessions that ended.
    pub sessions: u64,
    /// Duties that the store knows.
    pub duties: u64,
    /// No epoch up to this one is granted any more, in any group.
    pub floor: Epoch,
}

/// Outcome of opening a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Opened {
    /// It is open.
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
    /// It was open until now.
    Closed,
    /// It had ended before.
    AlreadyEnded,
}

/// Outcome of a keep-alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeptAlive {
    /// The session lives on for a whole TTL.
    Kept {
        /// The next [`Hold::mark`] of each hold that is kept.
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
    /// It stands for as long as the session.
    Kept,
    /// It is gone: stop at once.
    Lost,
    /// It was not looked at: its earlier deadline stands.
    Unknown,
}

/// Current holder of a duty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CurrentHolder {
    /// The instance.
    pub instance: InstanceId,
    /// Time left of its TTL.
    pub remaining: Duration,
}

/// Outcome of claiming a duty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Claimed {
    /// Granted under a new epoch.
    Granted(Hold),
    /// This session held it already, under this epoch.
    Already(Hold),
    /// Somebody else holds it, or is about to.
    HeldBy(Option<CurrentHolder>),
    /// The asking session has ended.
    SessionEnded,
}

/// Outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// It is free now.
    Freed,
    /// This very hold had ended before, and nobody was granted the duty since.
    Already,
    /// The duty was granted to somebody else, or this hold was never granted.
    NotYours,
}

/// Outcome of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The instance is out; so many holds ended at once (none with `AtTtl`).
    Evicted {
        /// Holds that ended with it.
        ended: u64,
    },
    /// No live session of that instance; it is barred from opening one.
    NotAMember,
}

/// A live member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The instance.
    pub instance: InstanceId,
    /// Its session's nonce; `None` for a foreign member that only shares the keys.
    pub nonce: Option<Nonce>,
    /// Its status.
    pub note: Note,
    /// Time left of its TTL.
    pub remaining: Duration,
    /// It was evicted and ends at its TTL.
    pub evicted: bool,
}

/// A duty and who holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The duty.
    pub duty: DutyKey,
    /// The newest epoch granted; `None` while a foreign instance holds it without one.
    pub epoch: Option<Epoch>,
    /// `None` when it is free.
    pub holder: Option<CurrentHolder>,
}

/// A stored checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Counts the writes.
    pub version: Version,
    /// The epoch under which it was written.
    pub epoch: Epoch,
    /// The writer.
    pub instance: InstanceId,
    /// The document.
    pub document: Document,
    /// The store's wall clock at the write, for people.
    pub unix_ms: u64,
}

/// Outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Stored, durable, under this version.
    Saved(Version),
    /// The hold does not stand: stop, and never retry. Nothing was changed.
    Fenced {
        /// The newest epoch granted for the duty.
        newest: Epoch,
    },
    /// The stored version is another one. Nothing was changed.
    Conflict {
        /// The version that is stored.
        stored: Version,
    },
}

/// A group's document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupDocument {
    /// Counts the replacements.
    pub version: Version,
    /// The document that all members see.
    pub document: Document,
}

/// Outcome of replacing a group's document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replaced {
    /// Stored under this version.
    Saved(Version),
    /// The stored version is another one. Nothing was changed.
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
        Expired "expired" "A hold was found expired by the next one to claim the duty."
        Released "released" "A hold was given back."
        Evicted "evicted" "An instance was evicted; with a duty: its hold ended by that."
        Forgotten "forgotten" "A duty was forgotten; the instance is the last that held it."
    }
}

/// One entry of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Grows with every entry of the group.
    pub seq: u64,
    /// The store's wall clock, for people.
    pub unix_ms: u64,
    /// Kind of the entry.
    pub kind: AuditKind,
    /// To whom.
    pub instance: InstanceId,
    /// To which duty; `None` for sessions.
    pub duty: Option<DutyKey>,
    /// Under which epoch; `None` for sessions.
    pub epoch: Option<Epoch>,
    /// Why.
    pub reason: String,
}

/// A number that two readers share exactly when they saw the same members with the same notes and
/// the same holders (R20). Remaining times do not enter it.
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
