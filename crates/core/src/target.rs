//! Targets: lists of duties that change at run time.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::{DutyId, Label, StoreError};

/// One item of work from a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The duty that it becomes.
    pub id: DutyId,
    /// Preferred zone; see [`crate::roster`].
    pub zone: Option<Label>,
    /// It exists, but is paused: its holder stops and releases it.
    pub paused: bool,
    /// Interval between two polls, if it has one of its own.
    pub every: Option<Duration>,
    /// Time that a poll may take, if it has a limit of its own.
    pub timeout: Option<Duration>,
}

impl Target {
    /// Creates a target without settings of its own.
    pub fn new(id: DutyId) -> Self {
        Self { id, zone: None, paused: false, every: None, timeout: None }
    }
}

/// A list of targets, sorted and without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Listing {
    targets: Vec<Target>,
    repeated: usize,
}

impl Listing {
    /// Sorts the list and counts duplicates. If one entry of a target is paused, the target is
    /// paused: stopping is the safe choice.
    pub fn new(targets: impl IntoIterator<Item = Target>) -> Self {
        let mut targets: Vec<_> = targets.into_iter().collect();
        targets.sort();
        let named = targets.len();
        targets.dedup_by(|later, first| {
            let same = later.id == first.id;
            first.paused |= same && later.paused;
            same
        });
        let repeated = named - targets.len();
        Self { targets, repeated }
    }

    /// Returns the targets by id.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Returns the number of duplicate entries.
    pub fn repeated(&self) -> usize {
        self.repeated
    }
}

/// Source of a list of targets.
///
/// A list is complete or an error: a partly read list is never returned as a shorter list, because
/// targets that are missing from a list are stopped.
#[async_trait]
pub trait Targets: Debug + Send + Sync + 'static {
    /// Reads the list in bounded time. More than `most` targets are
    /// [`crate::Code::TooManyTargets`].
    async fn list(&self, most: usize) -> Result<Listing, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_named_twice_is_there_once_and_paused_if_any_entry_says_so() {
        let target = |id: &str, paused| Target { paused, ..Target::new(DutyId::new(id).unwrap()) };
        let listing = Listing::new([target("b", false), target("a", false), target("b", true)]);
        assert_eq!(listing.targets(), [target("a", false), target("b", true)]);
        assert_eq!(listing.repeated(), 1);
    }
}
