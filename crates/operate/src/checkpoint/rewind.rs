//! Rewind: makes an older document the newest again.

use std::sync::Arc;

use serde::Serialize;
use tenure_core::{Code, DutyKey, Epoch, InstanceId, Store, Version};
use tenure_store::signing::Protection;
use tenure_store::transfer::{self, OperatorSession};

use super::{holder, newest, no_checkpoint, operator};
use crate::error::OperateError;
use crate::serialize::{optional_text, text};

/// A checkpoint to rewind.
#[derive(Clone, Debug)]
pub struct RewindOptions {
    /// Duty.
    pub duty: DutyKey,
    /// Version whose document becomes the newest.
    pub to: Version,
    /// Take the duty from its holder.
    pub force: bool,
    /// Check and change nothing.
    pub dry_run: bool,
}

/// Outcome of a rewind.
#[derive(Clone, Debug, Serialize)]
pub struct RewindReport {
    /// Duty.
    #[serde(serialize_with = "text")]
    pub duty: DutyKey,
    /// Whether nothing was written.
    pub dry_run: bool,
    /// Newest version before.
    pub before: u64,
    /// Version whose document is the newest again.
    pub rewind_to: u64,
    /// State before or after.
    #[serde(flatten)]
    pub outcome: RewindOutcome,
}

/// State of a duty that is rewound.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum RewindOutcome {
    /// Dry run.
    Preview {
        /// Current holder.
        #[serde(serialize_with = "optional_text")]
        held_by: Option<InstanceId>,
    },
    /// The checkpoint was written.
    Written {
        /// New version.
        version: u64,
        /// Epoch under which it was written.
        epoch: u64,
    },
}

/// Rewinds a checkpoint. `store` is open without signature checks; `name` is its address.
pub async fn rewind(
    store: Arc<dyn Store>,
    name: String,
    protection: Protection,
    options: RewindOptions,
) -> Result<RewindReport, OperateError> {
    let RewindOptions { duty, to, force, dry_run } = options;
    let newest = newest(&*store, &duty).await?;
    let kept = store.history(&duty).await?;
    if newest.is_none() && kept.is_empty() {
        return Err(no_checkpoint(&duty).into());
    }
    let report = |duty, before: Version, outcome| RewindReport {
        duty,
        dry_run,
        before: before.get(),
        rewind_to: to.get(),
        outcome,
    };
    if dry_run {
        if !kept.iter().any(|old| old.version == to) {
            let detail = format!("the history of {duty} has no version {to}");
            return Err(OperateError::refused(Code::BadInput, detail));
        }
        let before = newest.map_or(Version::ZERO, |newest| newest.version);
        let held_by = holder(&*store, &duty).await?;
        return Ok(report(duty, before, RewindOutcome::Preview { held_by }));
    }
    let mut session =
        OperatorSession::new(store, protection, name, operator("checkpoint rewind", force)?);
    let rewound = transfer::rewind(&mut session, &duty, to).await;
    session.close().await;
    let rewound = rewound?;
    let (version, epoch) = (rewound.now.get(), Epoch::get(rewound.epoch));
    Ok(report(duty, rewound.before, RewindOutcome::Written { version, epoch }))
}
