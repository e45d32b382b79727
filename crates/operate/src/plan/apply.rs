//! Apply: puts a plan in force if the group has not changed since.

use serde::Serialize;
use tenure_core::store::Replaced;
use tenure_core::{Code, Document, GroupName, Store};

use super::file::PlanBasis;
use super::{JOIN_NOTE, PlanChanges, PlanFile, PlanReport};
use crate::clock::{StoreTime, sha256};
use crate::error::OperateError;
use crate::group::StoredGroup;
use crate::serialize::text;

/// Outcome of applying a plan.
#[derive(Clone, Debug, Serialize)]
pub struct ApplyReport {
    /// Nothing was written.
    pub dry_run: bool,
    /// Name of the group.
    #[serde(serialize_with = "text")]
    pub group: GroupName,
    /// Whether the group's document changed, or would change.
    pub changed: bool,
    /// Changes that were put in force, without members that have to join.
    pub changes: PlanChanges,
    /// Number of duties to move.
    pub moves: usize,
    /// The plan counts on members that have not joined yet.
    #[serde(skip)]
    pub joins: bool,
}

impl PlanFile {
    /// Refuses a plan for another store, or one that changes nothing.
    pub fn check(&self, store: &str) -> Result<(), OperateError> {
        if self.store != store {
            let what = format!("it was made for the store {}, not for {store}", self.store);
            return Err(OperateError::refused(Code::BadPlan, what));
        }
        if self.changes.without_joins() != PlanChanges::default() {
            return Ok(());
        }
        let what = if self.changes.joins.is_empty() { "it changes nothing" } else { JOIN_NOTE };
        Err(OperateError::refused(Code::BadPlan, what))
    }
}

/// Puts a plan in force by one compare-and-set of the group's document.
pub async fn apply(
    store: &dyn Store,
    plan: &PlanFile,
    dry_run: bool,
) -> Result<ApplyReport, OperateError> {
    let group = StoredGroup::read(store, &plan.group).await?;
    let differences = plan.basis.differences(&PlanBasis::of(&group)?);
    if !differences.is_empty() {
        let what = format!("changed in {}: {}", plan.group, differences.join(", "));
        return Err(OperateError::refused(Code::StalePlan, what));
    }
    plan.changes.check(&group)?;
    let planned = PlanReport::new(&group, plan.changes.clone())?;
    if planned.moves_json() != plan.moves {
        let what = "it was made by a version of tenure that plans differently";
        return Err(OperateError::refused(Code::BadPlan, what));
    }
    // The plan must also work without the members that have not joined yet.
    let changes = plan.changes.without_joins();
    changes.check_takers(&group)?;
    let moves = PlanReport::new(&group, changes.clone())?.moves.len();

    let mut document = group.document.clone();
    changes.write_to(&mut document);
    let changed = document != group.document;
    if changed {
        let now = StoreTime::read(store).await.map(|time| time.now());
        document.record_changes(&group.document, now, sha256)?;
        // A dry run also refuses a document that is too large.
        let text = document.document()?;
        if !dry_run {
            replace(store, &group, &text).await?;
        }
    }
    let joins = changes != plan.changes;
    Ok(ApplyReport { dry_run, group: plan.group.clone(), changed, changes, moves, joins })
}

/// Replaces the document once. If the answer is lost, a read shows whether it happened.
async fn replace(
    store: &dyn Store,
    group: &StoredGroup,
    new: &Document,
) -> Result<(), OperateError> {
    let (name, expected) = (&group.name, group.version);
    match store.replace_group_document(name, expected, new).await {
        Ok(Replaced::Saved(_)) => Ok(()),
        Ok(Replaced::Conflict { .. }) => {
            let what = format!("changed in {name}: directives of operators");
            Err(OperateError::refused(Code::StalePlan, what))
        }
        Err(error) if error.is_unknown() => match store.group_document(name).await {
            Ok(now) if now.version > expected && now.document == *new => Ok(()),
            _ => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}
