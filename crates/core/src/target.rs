//! Targets: lists of duties that change at run time.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::{DutyId, Label, StoreError};

/// One thing to do, as its list names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The duty that it becomes.
    pub id: DutyId,
    /// Preferred zone; see [`crate::roster`].
    pub zone: Option<Label>,
    /// It is known, but nobody is to do it now: its holder stops and releases it.
    pub paused: bool,
}

impl Target {
    /// A target that is to be done, anywhere.
    pub fn new(id: DutyId) -> Self {
        Self { id, zone: None, paused: false }
    }
}

/// A list of targets, sorted and without repetitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Listing {
    targets: Vec<Target>,
    repeated: usize,
}

impl Listing {
    /// Sorts the list. A target that is named again is counted; if one of its entries is paused, it
    /// is paused: stopping is the safe side.
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

    /// The targets by id.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Returns the number of entries that repeated another entry's target.
    pub fn repeated(&self) -> usize {
        self.repeated
    }
}

/// Source of a list of targets.
///
/// A list is whole or it is an error: what cannot be read completely is never a shorter list,
/// because everything that is missing from a list is stopped.
#[async_trait]
pub trait Targets: Debug + Send + Sync + 'static {
    /// Reads the list. It ends in bounded time, and reads at most `most` targets: one more is
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
