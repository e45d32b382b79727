//! Rewind of a checkpoint to an earlier version.

use tenure_core::{Code, DutyKey, Epoch, Seal, StoreError, StoreResult, Version};

use super::operator::OperatorSession;

/// Result of a rewind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewound {
    /// The newest version before the rewind.
    pub before: Version,
    /// The new version, with the old document.
    pub now: Version,
    /// The epoch under which it was written.
    pub epoch: Epoch,
}

/// Makes the document of version `to` the newest again, as a new version. Nothing is removed from
/// the history, and the previous holder is fenced.
pub async fn rewind(
    session: &mut OperatorSession,
    duty: &DutyKey,
    to: Version,
) -> StoreResult<Rewound> {
    let hold = session.claim(duty, Epoch::ZERO).await?;
    let rewound = under(session, &hold, to).await;
    session.release(&hold).await;
    rewound
}

async fn under(
    session: &mut OperatorSession,
    hold: &tenure_core::Hold,
    to: Version,
) -> StoreResult<Rewound> {
    let duty = &hold.duty;
    let ring = session.ring(duty).await?;
    let Some(old) = ring.into_iter().find(|stored| stored.version == to) else {
        let detail = format!("the history of {duty} has no valid version {to}");
        return Err(StoreError::refused(Code::BadInput, detail));
    };
    let payload = old.payload()?;
    // The newest one is replaced even if it is invalid: that is the purpose of a rewind.
    let newest = session.newest(duty).await?;
    let (before, prev) = newest.as_ref().map_or_else(
        || (Version::ZERO, tenure_core::Mac::NONE),
        |newest| (newest.version, newest.mac()),
    );
    let saved = session.commit(hold, before, (prev, Seal::default()), payload).await?;
    Ok(Rewound { before, now: saved.version, epoch: saved.epoch })
}
