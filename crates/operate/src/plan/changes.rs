//! Planned changes: members that join and leave, weights and pins.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value;
use tenure_core::engine::{DrainMode, GroupConfig, Layout, MemberSettings, MemberStatus};
use tenure_core::roster::Pin;
use tenure_core::store::Member;
use tenure_core::{DutyId, GroupName, InstanceId, Nonce, Store, StoreError};

use crate::error::OperateError;
use crate::find;
use crate::group::{
    StoredGroup, candidates, check_room, check_takers, only_duty, roster_member, takes_duties,
};

/// Changes to plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanChanges {
    /// Members that would join. Applying a plan does not start them.
    #[serde(rename = "join", serialize_with = "names")]
    pub joins: BTreeSet<InstanceId>,
    /// Members that would hand over everything.
    #[serde(rename = "leave", serialize_with = "names")]
    pub leaves: BTreeSet<InstanceId>,
    /// Weights that members would have.
    #[serde(rename = "weight", serialize_with = "weights")]
    pub weights: BTreeMap<InstanceId, u32>,
    /// Duties that would be pinned to an instance.
    #[serde(rename = "pin", serialize_with = "pins")]
    pub pins: BTreeMap<DutyId, InstanceId>,
}

fn names<S: Serializer>(names: &BTreeSet<InstanceId>, s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(names.iter().map(ToString::to_string))
}

fn weights<S: Serializer>(all: &BTreeMap<InstanceId, u32>, s: S) -> Result<S::Ok, S::Error> {
    s.collect_map(all.iter().map(|(who, weight)| (who.to_string(), weight)))
}

fn pins<S: Serializer>(all: &BTreeMap<DutyId, InstanceId>, s: S) -> Result<S::Ok, S::Error> {
    s.collect_map(all.iter().map(|(duty, who)| (duty.to_string(), who.to_string())))
}

impl PlanChanges {
    /// The part that the group's document can express.
    pub(crate) fn without_joins(&self) -> Self {
        let mut changes = self.clone();
        changes.weights.retain(|who, _| !self.joins.contains(who));
        changes.joins.clear();
        changes
    }

    /// Replaces words for members by instance ids, as [`find::instance`] does.
    pub async fn resolve(self, store: &dyn Store, group: &GroupName) -> Result<Self, OperateError> {
        let find = async |who: &InstanceId| match self.joins.contains(who) {
            true => Ok(who.clone()),
            false => find::instance(store, group, who).await,
        };
        let mut resolved = Self { joins: self.joins.clone(), ..Self::default() };
        for who in &self.leaves {
            resolved.leaves.insert(find(who).await?);
        }
        for (who, weight) in &self.weights {
            resolved.add_weight(find(who).await?, *weight)?;
        }
        for (duty, who) in &self.pins {
            resolved.pins.insert(duty.clone(), find(who).await?);
        }
        Ok(resolved)
    }

    /// Replaces words for members that leave or get a weight by instance ids, in every group in
    /// which they are members, as [`find::in_all_groups`] does.
    pub async fn resolve_in_all_groups(
        self,
        store: &dyn Store,
    ) -> Result<BTreeMap<GroupName, Self>, OperateError> {
        let mut groups: BTreeMap<GroupName, Self> = BTreeMap::new();
        for who in &self.leaves {
            for (group, who) in find::in_all_groups(store, who).await? {
                groups.entry(group).or_default().leaves.insert(who);
            }
        }
        for (who, weight) in &self.weights {
            for (group, who) in find::in_all_groups(store, who).await? {
                groups.entry(group).or_default().add_weight(who, *weight)?;
            }
        }
        Ok(groups)
    }

    /// Gives a weight to a member; refuses a second one.
    pub fn add_weight(&mut self, who: InstanceId, weight: u32) -> Result<(), OperateError> {
        match self.weights.insert(who.clone(), weight) {
            Some(other) if other != weight => {
                Err(OperateError::conflict(format!("{who} is given two weights")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses unknown names and contradictory changes.
    pub(crate) fn check(&self, group: &StoredGroup) -> Result<(), OperateError> {
        for who in &self.joins {
            if group.member(who).is_some() || self.leaves.contains(who) {
                let what = format!("{who} cannot join: it is already a member or would leave");
                return Err(OperateError::conflict(what));
            }
        }
        let named = self.leaves.iter().chain(self.weights.keys()).chain(self.pins.values());
        for who in named.filter(|who| !self.joins.contains(who)) {
            group.participant(who)?;
        }
        if let Some(who) = self.weights.keys().find(|who| self.leaves.contains(who)) {
            let what = format!("{who} would leave and be given a weight");
            return Err(OperateError::conflict(what));
        }
        self.pins.iter().try_for_each(|(duty, who)| self.check_pin(group, duty, who))?;
        self.check_takers(group)
    }

    fn check_pin(
        &self,
        group: &StoredGroup,
        duty: &DutyId,
        who: &InstanceId,
    ) -> Result<(), OperateError> {
        group.check_duty(duty)?;
        let conflict = |what: String| Err(OperateError::conflict(what));
        if self.joins.contains(who) {
            let what = "its id is unknown before it starts; pin to a --name instead";
            return conflict(format!("{duty} cannot be pinned to {who}: {what}"));
        }
        let to = Pin::Instance(who.clone());
        if let Some(pin) = group.document.pins.get(duty).filter(|pin| **pin != to) {
            return conflict(format!("{duty} is already pinned to {pin}"));
        }
        let member = group.member(who);
        if member.and_then(only_duty).is_some_and(|only| only != *duty) {
            return conflict(format!("{who} takes only a duty other than {duty}"));
        }
        let mut document = group.document.clone();
        self.write_to(&mut document);
        let planned = member.and_then(|member| roster_member(member, &document));
        if !planned.is_some_and(|planned| takes_duties(&planned)) {
            return conflict(format!("{duty} cannot be pinned to {who}: it takes no duties"));
        }
        check_room(&to, &candidates(&group.members, &document), &document)
    }

    /// Refuses to leave duties without a member that takes them.
    pub(crate) fn check_takers(&self, group: &StoredGroup) -> Result<(), OperateError> {
        let after = self.apply_to(group)?;
        check_takers(group, (&after.members, &after.document))
    }

    /// Writes the changes to a group's document.
    pub(crate) fn write_to(&self, document: &mut GroupConfig) {
        let leaves = self.leaves.iter();
        document.drained.extend(leaves.map(|who| (who.clone(), DrainMode::HandOver)));
        let there = self.weights.iter().filter(|(who, _)| !self.joins.contains(who));
        document.weights.extend(there.map(|(who, weight)| (who.clone(), *weight)));
        let pins = self.pins.iter();
        document.pins.extend(pins.map(|(duty, who)| (duty.clone(), Pin::Instance(who.clone()))));
    }

    /// Returns the group as it would be.
    pub(crate) fn apply_to(&self, group: &StoredGroup) -> Result<StoredGroup, StoreError> {
        let mut after = group.clone();
        self.write_to(&mut after.document);
        let standby = matches!(group.layout(), Some(Layout::Standby));
        let only = standby.then(|| group.known_duties().into_iter().next()).flatten();
        for who in &self.joins {
            let weight = self.weights.get(who).copied().unwrap_or(1);
            let status = MemberStatus {
                weight,
                only: only.clone(),
                ..MemberStatus::with_room(MemberSettings::DEFAULT_ROOM)
            };
            after.members.push(Member {
                instance: who.clone(),
                nonce: Some(Nonce::from_entropy(0)),
                note: status.note()?,
                remaining: Duration::ZERO,
                evicted: false,
            });
        }
        after.members.sort_by(|a, b| a.instance.cmp(&b.instance));
        Ok(after)
    }

    /// Describes the changes, one line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.joins.iter().map(|who| format!("join {who}")).collect();
        lines.extend(self.leaves.iter().map(|who| format!("leave {who}")));
        lines.extend(self.weights.iter().map(|(who, weight)| format!("weight {who} {weight}")));
        lines.extend(self.pins.iter().map(|(duty, who)| format!("pin {duty} instance:{who}")));
        lines
    }

    /// Reads serialized changes.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let names = |key: &str| -> Option<BTreeSet<InstanceId>> {
            let names = value.get(key)?.as_array()?.iter();
            names.map(|name| InstanceId::unescape(name.as_str()?).ok()).collect()
        };
        let mut changes =
            Self { joins: names("join")?, leaves: names("leave")?, ..Self::default() };
        for (who, weight) in value.get("weight")?.as_object()? {
            let weight = u32::try_from(weight.as_u64()?).ok()?;
            changes.weights.insert(InstanceId::unescape(who).ok()?, weight);
        }
        for (duty, who) in value.get("pin")?.as_object()? {
            let who = InstanceId::unescape(who.as_str()?).ok()?;
            changes.pins.insert(DutyId::unescape(duty).ok()?, who);
        }
        Some(changes)
    }
}
