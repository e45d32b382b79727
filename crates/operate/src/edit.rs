//! Changes of a group's document by compare-and-set.
//!
//! Why: docs/decisions/0011-operators-write-to-the-group-document.md

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use tenure_core::engine::GroupConfig;
use tenure_core::roster::Pin;
use tenure_core::store::{AuditKind, Replaced};
use tenure_core::{Code, GroupName, InstanceId, Store, StoreError};
use tenure_duty::process;
use tokio::sync::OnceCell;

use crate::audit::AuditTrail;
use crate::clock::{StoreTime, sha256};
use crate::directive::{Directive, directives};
use crate::error::OperateError;
use crate::group::StoredGroup;
use crate::serialize::text;

/// Attempts while others change the same document.
const MAX_ATTEMPTS: u32 = 30;
/// Upper bound of the random pause after the first attempt; it grows with each attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Outcome of a change, as every report carries it.
#[derive(Clone, Debug, Serialize)]
pub struct EditSummary {
    /// Nothing was written.
    pub dry_run: bool,
    /// Name of the group.
    #[serde(serialize_with = "text")]
    pub group: GroupName,
    /// Whether the document changed, or would change.
    pub changed: bool,
    /// Directives that were dropped because their instance has ended.
    pub pruned: Vec<Directive>,
}

/// Changes the document of a group. `change` must be idempotent and may refuse. Without a
/// difference nothing is written. Returns the group before, and the document after the change.
pub(crate) async fn edit(
    store: &dyn Store,
    name: &GroupName,
    dry_run: bool,
    change: impl Fn(&StoredGroup, &mut GroupConfig) -> Result<(), OperateError>,
) -> Result<(StoredGroup, GroupConfig, EditSummary), OperateError> {
    // A write whose answer was lost: the next read shows whether it happened.
    let mut lost: Option<StoreError> = None;
    let time = OnceCell::new();
    let done = |before: StoredGroup, document, changed, pruned| {
        (before, document, EditSummary { dry_run, group: name.clone(), changed, pruned })
    };
    for attempt in 0..MAX_ATTEMPTS {
        if attempt > 0 {
            // Other writers retry at the same time: random pauses let one of them through.
            let longest = (RETRY_PAUSE * attempt).as_micros();
            let micros = u64::try_from(process::entropy() % longest).unwrap_or_default();
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
        let before = match (StoredGroup::read(store, name).await, &lost) {
            (Ok(before), _) => before,
            (Err(_), Some(lost)) => return Err(lost.clone().into()),
            (Err(error), None) => return Err(error.into()),
        };
        let mut document = before.document.clone();
        if let Err(refused) = change(&before, &mut document) {
            // The change may be refused because the lost write succeeded.
            return Err(lost.map_or(refused, Into::into));
        }
        if document == before.document {
            return Ok(done(before, document, lost.is_some(), Vec::new()));
        }
        let pruned = prune(&before, &mut document, store).await?;
        let now = time.get_or_init(|| StoreTime::read(store)).await.as_ref().map(StoreTime::now);
        document.record_changes(&before.document, now, sha256)?;
        // A dry run also refuses a document that is too large.
        let text = document.document()?;
        if !dry_run {
            match store.replace_group_document(name, before.version, &text).await {
                Ok(Replaced::Saved(_)) => {}
                Ok(Replaced::Conflict { .. }) => continue,
                Err(error) if error.is_unknown() => {
                    lost = Some(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
        }
        return Ok(done(before, document, true, pruned));
    }
    let detail = format!("the document of {name} kept changing ({MAX_ATTEMPTS} attempts)");
    Err(lost.unwrap_or_else(|| StoreError::refused(Code::Busy, detail)).into())
}

/// Removes directives about instances that have ended: those that left or were evicted, and those
/// that the audit trail has forgotten. An instance that merely expired may return under its id.
async fn prune(
    before: &StoredGroup,
    document: &mut GroupConfig,
    store: &dyn Store,
) -> Result<Vec<Directive>, StoreError> {
    let instance_of = |pin: &Pin| match pin {
        Pin::Instance(who) => Some(who.clone()),
        Pin::Name(_) | Pin::Zone(_) => None,
    };
    let named = document.drained.keys().chain(&document.cordoned).chain(document.weights.keys());
    let pinned = document.pins.values().filter_map(instance_of);
    let mut ended: BTreeSet<InstanceId> = named.cloned().chain(pinned).collect();
    for member in &before.members {
        ended.remove(&member.instance);
    }
    if ended.is_empty() {
        return Ok(Vec::new());
    }
    let trail = AuditTrail::read(store, &before.name).await?;
    let sessions = trail.0.iter().filter(|entry| entry.duty.is_none());
    let last: BTreeMap<&InstanceId, AuditKind> =
        sessions.map(|entry| (&entry.instance, entry.kind)).collect();
    ended.retain(|who| last.get(who) != Some(&AuditKind::Joined));
    let all = directives(&before.name, document);
    let lives = |who: &InstanceId| !ended.contains(who);
    document.drained.retain(|who, _| lives(who));
    document.cordoned.retain(lives);
    document.weights.retain(|who, _| lives(who));
    document.pins.retain(|_, pin| instance_of(pin).is_none_or(|who| lives(&who)));
    let left = directives(&before.name, document);
    Ok(all.into_iter().filter(|line| !left.contains(line)).collect())
}
