//! Settings of single targets, as their list has them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::{DutyId, Listing, StoreError, Target, Targets};

/// Interval and timeout of a target, where it has its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TargetSettings {
    pub(super) every: Option<Duration>,
    pub(super) timeout: Option<Duration>,
}

/// A list of targets that remembers their settings: members of the group plan by names alone.
#[derive(Debug)]
pub(super) struct RememberedTargets {
    source: Arc<dyn Targets>,
    last: Mutex<LastList>,
}

#[derive(Debug, Default)]
struct LastList {
    settings: BTreeMap<DutyId, TargetSettings>,
    /// Targets that are not paused.
    polled: Vec<DutyId>,
}

impl RememberedTargets {
    pub(super) fn new(source: Arc<dyn Targets>) -> Self {
        Self { source, last: Mutex::default() }
    }

    fn last(&self) -> MutexGuard<'_, LastList> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the targets in the last list that are not paused; none before the first list.
    pub(super) fn polled(&self) -> Vec<DutyId> {
        self.last().polled.clone()
    }

    /// Returns the settings of a target in the last list.
    pub(super) fn of(&self, target: &DutyId) -> TargetSettings {
        self.last().settings.get(target).copied().unwrap_or_default()
    }
}

#[async_trait]
impl Targets for RememberedTargets {
    async fn list(&self, most: usize) -> Result<Listing, StoreError> {
        let listing = self.source.list(most).await?;
        let own = |target: &Target| {
            let settings = TargetSettings { every: target.every, timeout: target.timeout };
            (settings != TargetSettings::default()).then(|| (target.id.clone(), settings))
        };
        let settings = listing.targets().iter().filter_map(own).collect();
        let polled = listing.targets().iter().filter(|target| !target.paused);
        let polled = polled.map(|target| target.id.clone()).collect();
        *self.last() = LastList { settings, polled };
        Ok(listing)
    }
}
