//! Records of what a member does, for logs, metrics and checkers (R24).

use std::borrow::Cow;

use crate::{DutyId, Epoch, InstanceId, LocalInstant};

macro_rules! changes {
    ($($name:ident $text:literal $doc:literal)*) => {
        /// Kind of a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Change { $(#[doc = $doc] $name,)* }

        impl Change {
            /// Every kind there is.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word in logs and traces.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

changes! {
    Joined "joined" "The instance became a member of its group."
    JoinFailed "join_failed" "It could not become a member; the reason says whether it tries again."
    Left "left" "It gave everything back and is no member any more."
    SessionLost "session_lost" "Its session has ended without its doing."
    Acquired "acquired" "A duty was granted to it."
    TakenOver "taken_over" "A duty was granted to it whose holder had vanished."
    AcquireFailed "acquire_failed" "Somebody else has the duty, or the store did not answer."
    Renewed "renewed" "A keep-alive confirmed the hold."
    RenewFailed "renew_failed" "A keep-alive was not answered or refused."
    Suspended "suspended" "It was paused: no effect before the store has confirmed."
    Resumed "resumed" "The store has confirmed the holds after a pause."
    Draining "draining" "The work on a duty was asked to come to its end."
    Released "released" "The work had stopped, and the duty was given back."
    ReleaseFailed "release_failed" "The store did not answer to a release; it is asked again."
    Expired "expired" "The hold's deadline passed before it was renewed: the work was cancelled."
    Revoked "revoked" "The hold was lost: the work was cancelled."
    Standby "standby" "It holds nothing, because others hold everything."
    Unheld "unheld" "Duties stay free because no member has room for them."
    Listed "listed" "The list of duties changed."
    ListFailed "list_failed" "The list of duties could not be read; the last good one stays."
    LookFailed "look_failed" "Members and holders could not be read; what was seen last stays."
    Waiting "waiting" "The store had been away: a whole TTL passes before anything is claimed."
    Refused "refused" "A wish of the user was refused."
}

/// Severity of a record, for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Work was cut off.
    Error,
    /// Something is wrong and is tried again.
    Warn,
    /// A normal change.
    Info,
    /// A renewal that went well.
    Debug,
}

impl Change {
    /// The severity of a record of this kind.
    pub const fn severity(self) -> Severity {
        match self {
            Self::SessionLost | Self::Expired | Self::Revoked => Severity::Error,
            Self::JoinFailed
            | Self::RenewFailed
            | Self::ReleaseFailed
            | Self::Suspended
            | Self::Unheld
            | Self::ListFailed
            | Self::LookFailed
            | Self::Waiting
            | Self::Refused => Severity::Warn,
            Self::Joined
            | Self::Left
            | Self::Acquired
            | Self::TakenOver
            | Self::AcquireFailed
            | Self::Resumed
            | Self::Draining
            | Self::Released
            | Self::Standby
            | Self::Listed => Severity::Info,
            Self::Renewed => Severity::Debug,
        }
    }
}

/// One transition of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// When, on the instance's own clock.
    pub at: LocalInstant,
    /// Kind of the transition.
    pub change: Change,
    /// The instance.
    pub instance: InstanceId,
    /// The duty; `None` when the record is about the instance.
    pub duty: Option<DutyId>,
    /// The epoch of the hold.
    pub epoch: Option<Epoch>,
    /// The other instance involved: the previous or the current holder.
    pub other: Option<InstanceId>,
    /// The reason: a fixed word (`join`, `deadline`), or a sentence with a code.
    pub reason: Cow<'static, str>,
}
