//! What would be changed: who joins and leaves, weights and pins.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::engine::{DrainMode, GroupConfig, Layout, MemberSettings, MemberStatus};
use tenure_core::roster::Pin;
use tenure_core::store::Member;
use tenure_core::{Code, DutyId, DutyKey, GroupName, InstanceId, Nonce, StoreError};

use super::refused;
use super::state::{self, State};
use crate::args::name;
use crate::failure::Failure;
use crate::group::{check_room, check_takers, is_taker, takers};

/// What would be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Members that would come; whoever applies this cannot make them.
    pub(super) joins: BTreeSet<InstanceId>,
    pub(super) leaves: BTreeSet<InstanceId>,
    pub(super) weights: BTreeMap<InstanceId, u32>,
    pub(super) pins: BTreeMap<DutyId, InstanceId>,
}

fn conflict<T>(what: String) -> Result<T, Failure> {
    Err(refused(Code::Conflict, what))
}

/// Takes `NAME=VALUE` apart; in a name an equals sign is written `%3D`, as it is printed.
fn pair<'a>(option: &str, text: &'a str, form: &str) -> Result<(&'a str, &'a str), Failure> {
    let apart = text.split_once('=').filter(|(left, right)| !left.is_empty() && !right.is_empty());
    let apart = apart.filter(|(_, right)| !right.contains('='));
    apart.ok_or_else(|| Failure::Usage(format!("{option} is {form}; write = in a name as %3D")))
}

/// Reads a duty of the group: its id, or `GROUP/ID` as it is printed elsewhere.
fn duty_of(group: &GroupName, text: &str) -> Result<DutyId, Failure> {
    if !text.contains('/') {
        return name(text, DutyId::unescape);
    }
    let duty: DutyKey = name(text, str::parse)?;
    match duty.group == *group {
        true => Ok(duty.id),
        false => Err(Failure::Usage(format!("{duty} is not of the group {group}"))),
    }
}

impl Changes {
    /// Reads what was typed.
    pub(super) fn read(
        group: &GroupName,
        joins: &[String],
        leaves: &[String],
        weights: &[String],
        pins: &[String],
    ) -> Result<Self, Failure> {
        let instance = |text: &str| name(text, InstanceId::unescape);
        let mut changes = Self::default();
        for join in joins {
            changes.joins.insert(instance(join)?);
        }
        for leave in leaves {
            changes.leaves.insert(instance(leave)?);
        }
        for text in weights {
            let form = "INSTANCE=N, with a whole number";
            let (who, weight) = pair("--weight", text, form)?;
            let wrong = |_| Failure::Usage(format!("--weight is {form} of at most {}", u32::MAX));
            let weight = weight.parse().map_err(wrong)?;
            let who = instance(who)?;
            if changes.weights.insert(who.clone(), weight).is_some_and(|other| other != weight) {
                return conflict(format!("{who} is given two weights"));
            }
        }
        for text in pins {
            let (duty, who) = pair("--pin", text, "ID=INSTANCE")?;
            let (duty, who) = (duty_of(group, duty)?, instance(who)?);
            let other = changes.pins.insert(duty.clone(), who.clone());
            if let Some(other) = other.filter(|other| *other != who) {
                return conflict(format!("{duty} is pinned to {other} and to {who}"));
            }
        }
        Ok(changes)
    }

    /// What can be written down.
    pub(super) fn without_joins(&self) -> Self {
        let mut changes = self.clone();
        changes.weights.retain(|who, _| !self.joins.contains(who));
        changes.joins.clear();
        changes
    }

    /// Refuses what names nobody, or does not go together.
    pub(super) fn check(&self, state: &State) -> Result<(), Failure> {
        for who in &self.joins {
            if state.member(who).is_some() || self.leaves.contains(who) {
                return conflict(format!("{who} would join, and is there already or would leave"));
            }
        }
        let named = self.leaves.iter().chain(self.weights.keys()).chain(self.pins.values());
        for who in named.filter(|who| !self.joins.contains(who)) {
            let Some(member) = state.member(who) else {
                let what = format!("no member {who} lives in {}", state.name);
                return Err(refused(Code::NotThere, what));
            };
            if member.nonce.is_none() || MemberStatus::read(&member.note).is_none() {
                return conflict(format!("{who} does not read what operators write"));
            }
        }
        if let Some(who) = self.weights.keys().find(|who| self.leaves.contains(who)) {
            return conflict(format!("{who} would leave and is given a weight"));
        }
        self.pins.iter().try_for_each(|(duty, who)| self.check_pin(state, duty, who))?;
        self.check_takers(state)
    }

    fn check_pin(&self, state: &State, duty: &DutyId, who: &InstanceId) -> Result<(), Failure> {
        if !state.knows(duty) {
            let what = format!("the duty {}/{duty} was never granted", state.name);
            return Err(refused(Code::NotThere, what));
        }
        if self.joins.contains(who) {
            let what = "its id is not known before it starts; pin to a --name instead";
            return conflict(format!("{duty} cannot be pinned to {who}, who is not there: {what}"));
        }
        let to = Pin::Instance(who.clone());
        if let Some(pin) = state.group.pins.get(duty).filter(|pin| **pin != to) {
            return conflict(format!("{duty} is pinned to {pin} already"));
        }
        let member = state.member(who);
        if member.and_then(state::only).is_some_and(|only| only != *duty) {
            return conflict(format!("{who} is there for another duty than {duty}"));
        }
        let mut group = state.group.clone();
        self.write_to(&mut group);
        let seat = member.and_then(|member| state::seat(member, &group));
        if !seat.is_some_and(|seat| is_taker(&seat)) {
            return conflict(format!("{duty} cannot be pinned to {who}, who takes no duties"));
        }
        check_room(&to, &takers(&state.members, &group), &group)?;
        Ok(())
    }

    /// Refuses to take the duties from the last one who would have them.
    pub(super) fn check_takers(&self, state: &State) -> Result<(), Failure> {
        let after = self.apply_to(state)?;
        let before = (&state.members[..], &state.group);
        check_takers(&state.name, before, (&after.members, &after.group))?;
        Ok(())
    }

    /// The document as it would be.
    pub(super) fn write_to(&self, group: &mut GroupConfig) {
        let leaves = self.leaves.iter();
        group.drained.extend(leaves.map(|who| (who.clone(), DrainMode::HandOver)));
        let there = self.weights.iter().filter(|(who, _)| !self.joins.contains(who));
        group.weights.extend(there.map(|(who, weight)| (who.clone(), *weight)));
        let pins = self.pins.iter();
        group.pins.extend(pins.map(|(duty, who)| (duty.clone(), Pin::Instance(who.clone()))));
    }

    /// The group as it would be.
    pub(super) fn apply_to(&self, state: &State) -> Result<State, StoreError> {
        let mut after = state.clone();
        self.write_to(&mut after.group);
        let standby = matches!(state.layout(), Some(Layout::Standby));
        let only = standby.then(|| state.known().into_iter().next()).flatten();
        for who in &self.joins {
            let weight = self.weights.get(who).copied().unwrap_or(1);
            let said = MemberStatus {
                weight,
                only: only.clone(),
                ..MemberStatus::with_room(MemberSettings::DEFAULT_ROOM)
            };
            after.members.push(Member {
                instance: who.clone(),
                nonce: Some(Nonce::from_entropy(0)),
                note: said.note()?,
                remaining: Duration::ZERO,
                evicted: false,
            });
        }
        after.members.sort_by(|a, b| a.instance.cmp(&b.instance));
        Ok(after)
    }

    /// One line for each, for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.joins.iter().map(|who| format!("join {who}")).collect();
        lines.extend(self.leaves.iter().map(|who| format!("leave {who}")));
        lines.extend(self.weights.iter().map(|(who, weight)| format!("weight {who} {weight}")));
        lines.extend(self.pins.iter().map(|(duty, who)| format!("pin {duty} instance:{who}")));
        lines
    }

    pub(super) fn value(&self) -> Value {
        let names = |names: &BTreeSet<InstanceId>| -> Value {
            names.iter().map(ToString::to_string).collect()
        };
        let weight = |(who, weight): (&InstanceId, &u32)| (who.to_string(), json!(weight));
        let pin = |(duty, who): (&DutyId, &InstanceId)| (duty.to_string(), json!(who.to_string()));
        json!({
            "join": names(&self.joins),
            "leave": names(&self.leaves),
            "weight": self.weights.iter().map(weight).collect::<serde_json::Map<_, _>>(),
            "pin": self.pins.iter().map(pin).collect::<serde_json::Map<_, _>>(),
        })
    }

    /// Reads what [`Self::value`] wrote.
    pub(super) fn of_value(value: &Value) -> Option<Self> {
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
