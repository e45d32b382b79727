//! Records of a member's transitions, for logs, metrics and checkers (R24).

use std::borrow::Cow;

use crate::{DutyId, Epoch, InstanceId, LocalInstant};

crate::text_enum! {
    /// Kind of a record.
    pub enum Change {
        Joined "joined" "The instance became a member of its group."
        JoinFailed "join_failed" "It could not become a member."
        Left "left" "It released everything and left the group."
        SessionLost "session_lost"
            "Its session was ended by the store or was not renewed in time."
        Acquired "acquired" "A duty was granted to it."
        TakenOver "taken_over"
            "It was granted a duty whose holder's session had expired."
        AcquireFailed "acquire_failed" "Another member holds the duty."
        ClaimFailed "claim_failed" "The store failed to grant duties, which is tried again."
        Renewed "renewed" "A keep-alive confirmed the hold."
        RenewFailed "renew_failed" "A keep-alive failed or timed out."
        Suspended "suspended"
            "The process was paused: no effects until the store confirms the holds."
        Resumed "resumed" "The store has confirmed the holds after a pause."
        Draining "draining" "The work on a duty was asked to stop."
        Released "released" "The work stopped and the duty was released."
        ReleaseFailed "release_failed" "A release failed or timed out and is repeated."
        Expired "expired" "The hold was not renewed before its deadline: the work was cancelled."
        Revoked "revoked" "The hold was lost: the work was cancelled."
        Standby "standby" "It holds no duty because other members hold all of them."
        Unheld "unheld" "Duties stay free because no member has room for them."
        Listed "listed" "The list of duties changed."
        ListFailed "list_failed"
            "The list of duties could not be read; the previous list stays in use."
        LookFailed "look_failed"
            "Members and holders could not be read; the previous view stays in use."
        Waiting "waiting"
            "The store was unreachable or reset: nothing is claimed for slightly longer than a TTL."
        GroupTtl "group_ttl" "The longest TTL of the group's members is another one."
        Refused "refused" "A request of the user was refused."
    }
}

crate::text_enum! {
    /// Level of a log line, the most important first.
    pub enum LogLevel {
        Error "error" "Work was cancelled."
        Warn "warn" "Something failed and is retried."
        Info "info" "State changes."
        Debug "debug" "Successful renewals."
    }
}

impl Change {
    /// Returns the log level of a record of this kind.
    pub const fn level(self) -> LogLevel {
        match self {
            Self::SessionLost | Self::Expired | Self::Revoked => LogLevel::Error,
            Self::JoinFailed
            | Self::ClaimFailed
            | Self::RenewFailed
            | Self::ReleaseFailed
            | Self::Suspended
            | Self::Unheld
            | Self::ListFailed
            | Self::LookFailed
            | Self::Waiting
            | Self::Refused => LogLevel::Warn,
            Self::Renewed => LogLevel::Debug,
            Self::Joined
            | Self::Left
            | Self::Acquired
            | Self::TakenOver
            | Self::AcquireFailed
            | Self::Resumed
            | Self::Draining
            | Self::Released
            | Self::Standby
            | Self::Listed
            | Self::GroupTtl => LogLevel::Info,
        }
    }
}

/// One transition of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Time on the instance's own clock.
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
