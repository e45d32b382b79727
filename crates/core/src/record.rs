//! Records of what a member does, for logs, metrics and checkers (R24).

use std::borrow::Cow;

use crate::{DutyId, Epoch, InstanceId, LocalInstant};

crate::text_enum! {
    /// Kind of a record.
    pub enum Change {
        Joined "joined" "The instance became a member of its group."
        JoinFailed "join_failed" "It could not become a member."
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
        ReleaseFailed "release_failed" "A release was not answered, and is repeated."
        Expired "expired" "The hold was not renewed before its deadline: the work was cancelled."
        Revoked "revoked" "The hold was lost: the work was cancelled."
        Standby "standby" "It holds nothing, because others hold everything."
        Unheld "unheld" "Duties stay free because no member has room for them."
        Listed "listed" "The list of duties changed."
        ListFailed "list_failed" "The list of duties could not be read; the last good one stays."
        LookFailed "look_failed" "Members and holders could not be read; what was seen last stays."
        Waiting "waiting" "The store had been away: a whole TTL passes before anything is claimed."
        Refused "refused" "A wish of the user was refused."
    }
}

crate::text_enum! {
    /// Level of a log line, the most important first.
    pub enum LogLevel {
        Error "error" "Work was cut off."
        Warn "warn" "Something failed and is retried."
        Info "info" "State changes."
        Debug "debug" "Successful renewals, too."
    }
}

impl Change {
    /// The log level of a record of this kind.
    pub const fn level(self) -> LogLevel {
        match self {
            Self::SessionLost | Self::Expired | Self::Revoked => LogLevel::Error,
            Self::JoinFailed
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
            | Self::Listed => LogLevel::Info,
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
