//! A checkpoint that an operator writes.

use tenure_core::{Code, DutyKey, Epoch, Mac, Seal, StoreError, StoreResult, Version};

use super::operator::OperatorSession;

/// Outcome of [`put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is stored.
    Stored {
        /// The new version.
        version: Version,
        /// The epoch under which it was written.
        epoch: Epoch,
    },
    /// Another version is stored than the expected one; nothing was changed.
    Conflict {
        /// The version that is stored; [`Version::ZERO`] if there is no checkpoint.
        newest: Version,
    },
}

/// Claims a duty, stores a document as its newest checkpoint, and releases the duty. With `over`,
/// only that version is replaced.
pub async fn put(
    session: &mut OperatorSession,
    duty: &DutyKey,
    document: &[u8],
    over: Option<Version>,
) -> StoreResult<Put> {
    let hold = session.claim(duty, Epoch::ZERO).await?;
    let put = under(session, &hold, document, over).await;
    session.release(&hold).await;
    put
}

async fn under(
    session: &mut OperatorSession,
    hold: &tenure_core::Hold,
    document: &[u8],
    over: Option<Version>,
) -> StoreResult<Put> {
    let newest = session.load(&hold.duty).await?;
    if let Some(moved) = newest.as_ref().and_then(|newest| newest.seal.moved.as_ref()) {
        return Err(StoreError::refused(Code::Moved, format!("{} to {}", hold.duty, moved.to)));
    }
    let (before, prev) =
        newest.as_ref().map_or((Version::ZERO, Mac::NONE), |newest| (newest.version, newest.mac()));
    if over.is_some_and(|over| over != before) {
        return Ok(Put::Conflict { newest: before });
    }
    let saved = session.commit(hold, before, (prev, Seal::default()), document).await?;
    Ok(Put::Stored { version: saved.version, epoch: saved.epoch })
}
