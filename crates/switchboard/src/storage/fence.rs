//! Fences: the newest hold of each duty.

use async_trait::async_trait;
use tenure_core::Epoch;

use super::row::from_row;
use super::{Decision, Permitted, SourceScope};
use crate::error::StorageResult;

/// Reason why a fence cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFence {
    /// The epoch is more than a day above the Unix microseconds of the store; no store grants it.
    EpochAhead,
    /// The source already has [`MAX_FENCES_PER_SOURCE`] fences.
    TooMany,
}

/// Maximum number of fences of a source; repeated in the PostgreSQL statements.
pub const MAX_FENCES_PER_SOURCE: i64 = 10_000;

/// A fence and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFence {
    /// The source that it applies to; `None` for every source.
    pub source: Option<SourceScope>,
    /// The newest hold.
    pub newest: NewestHold,
}

from_row! { NewestHold, |row| duty, epoch, instance, updated_at }
from_row! { KnownFence, |row|
    source = {
        let source: SourceScope = row.get()?;
        (!source.channel.is_empty()).then_some(source)
    },
    newest,
}

impl KnownFence {
    /// Returns its position in the list. Printed duties, channels and providers have no spaces.
    pub fn cursor(&self) -> String {
        let duty = &self.newest.duty;
        match &self.source {
            None => duty.clone(),
            Some(SourceScope { channel, provider, endpoint_identity }) => {
                format!("{duty} {channel} {provider} {endpoint_identity}")
            }
        }
    }
}

/// Parses duty, channel, provider and endpoint from a [`KnownFence::cursor`].
pub(super) fn parse_fence_cursor(cursor: &str) -> [&str; 4] {
    let mut parts = cursor.splitn(4, ' ');
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// The newest hold of a duty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestHold {
    /// The duty as it is printed.
    pub duty: String,
    /// The newest epoch that was seen.
    pub epoch: Epoch,
    /// The holder.
    pub instance: String,
    /// Time when it was first seen, in Unix microseconds.
    pub updated_at: i64,
}

/// Storage of fences.
#[async_trait]
pub trait Fences {
    /// Returns known fences, sorted by duty, of one source or of all; at most `limit` after the one
    /// with this [`KnownFence::cursor`], or from the start.
    async fn fences(
        &self,
        of: Option<&SourceScope>,
        after: &str,
        limit: usize,
    ) -> StorageResult<Vec<KnownFence>>;
    /// Deletes the fences of a duty, of one source or of all, records it in the audit trail, and
    /// returns them.
    async fn reset_fence(
        &self,
        duty: &str,
        source: Option<&SourceScope>,
        decision: &Decision,
    ) -> Permitted<Vec<KnownFence>>;
}
