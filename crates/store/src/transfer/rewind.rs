//! Taking a checkpoint back to one of before.

use tenure_core::{Code, DutyKey, Epoch, Seal, StoreError, StoreResult, Version};

use super::operator::OperatorSession;

/// Result of a rewind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewound {
    /// The newest version until then.
    pub before: Version,
    /// The version that has the old document now.
    pub now: Version,
    /// The epoch under which it was written.
    pub epoch: Epoch,
}

/// Makes the document of version `to` the newest again, as a new version: nothing is taken out of
/// the history, and whoever held the duty is fenced.
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
        let detail = format!("no good version {to} of {duty} is in its history");
        return Err(StoreError::refused(Code::BadInput, detail));
    };
    // It is replaced whatever it is: that is what a rewind is for.
    let newest = session.newest(duty).await?;
    let (before, prev) = newest.as_ref().map_or_else(
        || (Version::ZERO, tenure_core::Mac::NONE),
        |newest| (newest.version, newest.mac()),
    );
    let saved = session.commit(hold, before, (prev, Seal::default()), &old.payload).await?;
    Ok(Rewound { before, now: saved.version, epoch: saved.epoch })
}
