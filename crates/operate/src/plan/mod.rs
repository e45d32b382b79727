//! Plan: the moves that a change would cause, without making it; apply puts a plan in force.

mod apply;
mod changes;
mod file;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tenure_core::engine::GroupSnapshot;
use tenure_core::roster::{PlacementReason, RosterMember};
use tenure_core::{DutyId, DutyKey, GroupName, InstanceId, Label, Store, StoreError};

use crate::error::OperateError;
use crate::find::name_of;
use crate::group::{StoredGroup, TARGETS_NOTE};
use crate::serialize::{optional_text, text};

pub use apply::{ApplyReport, apply};
pub use changes::PlanChanges;
pub use file::PlanFile;

/// Note for plans with members that would join.
pub const JOIN_NOTE: &str = "applying a plan does not start new members; each gets as many duties \
    as planned, but which ones depends on its id";

/// A plan: the group as it would be.
#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    /// Name of the group.
    #[serde(serialize_with = "text")]
    pub group: GroupName,
    /// Changes.
    pub changes: PlanChanges,
    /// Duties per member, before and after.
    pub members: Vec<PlannedMember>,
    /// Duties whose holder would change.
    pub moves: Vec<PlannedMove>,
    /// Number of planned duties.
    pub duties: usize,
    /// The group has foreign members, whose rule decides.
    pub foreign_rule: bool,
    /// Limits of the plan.
    pub notes: Vec<&'static str>,
    #[serde(skip)]
    basis: file::PlanBasis,
}

/// Number of duties of a member.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedMember {
    /// Instance.
    #[serde(serialize_with = "text")]
    pub instance: InstanceId,
    /// Name that survives restarts of its process.
    #[serde(serialize_with = "optional_text")]
    pub name: Option<Label>,
    /// Duties that it holds now.
    pub before: usize,
    /// Duties that it would hold.
    pub after: usize,
}

/// A duty whose holder would change.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedMove {
    /// Duty.
    #[serde(serialize_with = "text")]
    pub duty: DutyKey,
    /// Current holder.
    #[serde(serialize_with = "optional_text")]
    pub from: Option<InstanceId>,
    /// Planned holder; `None` if no member has room.
    #[serde(serialize_with = "optional_text")]
    pub to: Option<InstanceId>,
    /// Reason why it would not stay.
    pub leaves: Option<&'static str>,
    /// Reason why it would go there.
    pub comes: Option<&'static str>,
    /// Whether it would move without the change, too.
    pub anyway: bool,
    /// Reasons in words.
    pub why: String,
}

/// Plans changes of a group.
pub async fn plan(
    store: &dyn Store,
    group: &GroupName,
    changes: PlanChanges,
) -> Result<PlanReport, OperateError> {
    let group = StoredGroup::read(store, group).await?;
    changes.check(&group)?;
    Ok(PlanReport::new(&group, changes)?)
}

/// Duties of a roster with their planned holders.
fn owners(roster: &GroupSnapshot) -> impl Iterator<Item = (&DutyId, Option<&InstanceId>)> {
    let owner = |index: &Option<u32>| index.map(|n| &roster.members[n as usize].instance);
    let duties = roster.duties.iter().map(|planned| &planned.duty);
    duties.zip(roster.plan.holders.iter().map(owner))
}

impl PlanReport {
    fn new(group: &StoredGroup, changes: PlanChanges) -> Result<Self, StoreError> {
        let after = changes.apply_to(group)?;
        let held = group.held();
        let (now, then) = (group.rosters(None), after.rosters(None));
        let unchanged: BTreeMap<_, _> = now.iter().flat_map(owners).collect();
        let planned: BTreeMap<_, _> = then.iter().flat_map(owners).collect();
        let mut counts: BTreeMap<&InstanceId, (usize, usize)> =
            after.members.iter().map(|member| (&member.instance, (0, 0))).collect();
        for (duty, instance) in &held {
            let count = counts.entry(instance).or_default();
            count.0 += 1;
            // A holder that the roster does not count keeps its duty.
            count.1 += usize::from(!planned.contains_key(duty) && !after.document.pauses(duty));
        }
        for instance in planned.values().flatten() {
            counts.entry(instance).or_default().1 += 1;
        }
        let members = counts.into_iter().map(|(instance, (before, after))| PlannedMember {
            instance: instance.clone(),
            name: group.member(instance).and_then(name_of),
            before,
            after,
        });
        let foreign_rule = then.iter().any(|roster| roster.foreign);
        let notes = [
            (group.has_targets(), TARGETS_NOTE),
            (!changes.joins.is_empty(), JOIN_NOTE),
            (foreign_rule, "the group has foreign members, whose rule ignores weights and pins"),
        ];
        Ok(Self {
            group: group.name.clone(),
            members: members.collect(),
            moves: then.iter().flat_map(|r| moves(r, &group.name, &held, &unchanged)).collect(),
            duties: planned.len(),
            foreign_rule,
            notes: notes.into_iter().filter(|(applies, _)| *applies).map(|(_, n)| n).collect(),
            changes,
            basis: file::PlanBasis::of(group)?,
        })
    }

    /// Returns the plan as a file for [`apply`]; `store` is the address of the store.
    pub fn file(&self, store: String) -> PlanFile {
        let (group, changes) = (self.group.clone(), self.changes.clone());
        PlanFile { store, group, changes, basis: self.basis.clone(), moves: self.moves_json() }
    }

    /// The moves as a plan file stores them. They have text keys, so this does not fail.
    fn moves_json(&self) -> Value {
        serde_json::to_value(&self.moves).unwrap_or_default()
    }
}

fn moves(
    roster: &GroupSnapshot,
    group: &GroupName,
    held: &BTreeMap<DutyId, InstanceId>,
    unchanged: &BTreeMap<&DutyId, Option<&InstanceId>>,
) -> Vec<PlannedMove> {
    let explainer = roster.explainer();
    let away = |(_, (duty, to)): &(usize, (&DutyId, _))| held.get(duty) != *to;
    let moved = owners(roster).enumerate().filter(away).map(|(at, (duty, to))| {
        let (from, opinions) = (held.get(duty), explainer.explain(at));
        let why = |who: Option<&InstanceId>| {
            let there = |member: &RosterMember| Some(&member.instance) == who;
            roster.members.iter().position(there).map(|n| opinions[n].why)
        };
        let anyway = unchanged.get(duty).is_some_and(|owner| *owner != from);
        let (leaves, comes) = (why(from), why(to));
        let mut reasons = Vec::new();
        reasons.extend(leaves.map(|why| format!("from: {}", why.sentence())));
        reasons.extend(comes.map(|why| format!("to: {}", why.sentence())));
        reasons.extend(to.is_none().then(|| "no member has room".to_owned()));
        reasons.extend(anyway.then(|| "it would also move without the change".to_owned()));
        PlannedMove {
            duty: DutyKey { group: group.clone(), id: duty.clone() },
            from: from.cloned(),
            to: to.cloned(),
            leaves: leaves.map(PlacementReason::as_str),
            comes: comes.map(PlacementReason::as_str),
            anyway,
            why: reasons.join("; "),
        }
    });
    moved.collect()
}
