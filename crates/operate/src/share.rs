//! Cordon and weight: how many duties an instance gets.

use serde::Serialize;
use tenure_core::engine::GroupConfig;
use tenure_core::{GroupName, InstanceId, Store};

use crate::edit::{EditSummary, edit};
use crate::error::OperateError;
use crate::group::{StoredGroup, check_takers};
use crate::serialize::text;

/// A change of an instance's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Whether the instance gets no further duties.
    Cordon(bool),
    /// Weight; `None` restores the weight that the instance was started with.
    Weight(Option<u32>),
}

/// A share to change.
#[derive(Clone, Debug)]
pub struct ShareOptions {
    /// Name of the group.
    pub group: GroupName,
    /// Instance.
    pub instance: InstanceId,
    /// Change.
    pub share: Share,
    /// Check everything and change nothing.
    pub dry_run: bool,
}

/// Outcome of changing a share.
#[derive(Clone, Debug, Serialize)]
pub struct ShareReport {
    /// Change of the group's document.
    #[serde(flatten)]
    pub edit: EditSummary,
    /// Instance.
    #[serde(serialize_with = "text")]
    pub instance: InstanceId,
    /// Cordon or weight.
    #[serde(flatten)]
    pub change: ShareChange,
    /// The instance is drained.
    #[serde(skip)]
    pub drained: bool,
    /// The instance is cordoned.
    #[serde(skip)]
    pub is_cordoned: bool,
}

/// Details of a changed share.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ShareChange {
    /// A cordon was set or removed.
    Cordon {
        /// Whether the instance is cordoned now.
        cordoned: bool,
        /// No other member takes the duties that become free.
        nobody_else: bool,
    },
    /// A weight was set or removed.
    Weight {
        /// New weight; `None` for the instance's own.
        weight: Option<u32>,
        /// Previous weight that an operator had set.
        before: Option<u32>,
    },
}

/// Changes the share of an instance.
pub async fn set_share(
    store: &dyn Store,
    options: &ShareOptions,
) -> Result<ShareReport, OperateError> {
    let ShareOptions { group, instance, share, dry_run } = options;
    let change = |before: &StoredGroup, document: &mut GroupConfig| {
        let changed = match *share {
            Share::Cordon(false) => document.cordoned.remove(instance),
            Share::Weight(None) => document.weights.remove(instance).is_some(),
            Share::Cordon(true) => {
                before.active_participant(instance)?;
                document.cordoned.insert(instance.clone())
            }
            Share::Weight(Some(weight)) => {
                before.active_participant(instance)?;
                document.weights.insert(instance.clone(), weight) != Some(weight)
            }
        };
        // A directive about an instance that has ended can still be removed.
        if !changed {
            before.live_member(instance)?;
        }
        match share {
            Share::Weight(_) => check_takers(before, (&before.members, document)),
            Share::Cordon(_) => Ok(()),
        }
    };
    let (before, document, edit) = edit(store, group, *dry_run, change).await?;
    let change = match *share {
        Share::Cordon(cordoned) => ShareChange::Cordon {
            cordoned,
            nobody_else: cordoned && !before.has_successor(&document, instance),
        },
        Share::Weight(weight) => {
            let before = before.document.weights.get(instance).copied();
            ShareChange::Weight { weight, before }
        }
    };
    Ok(ShareReport {
        edit,
        instance: instance.clone(),
        change,
        drained: document.drained.contains_key(instance),
        is_cordoned: document.cordoned.contains(instance),
    })
}
