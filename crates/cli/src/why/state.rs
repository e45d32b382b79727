//! A group as the store shows it, and what its members plan from that.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::engine::{GroupConfig, GroupSnapshot, Layout, MemberStatus};
use tenure_core::store::{Holder, Member};
use tenure_core::{DutyId, GroupName, InstanceId, Listing, Store, StoreError, Target, Version};

use crate::group::{self, Read};
pub(super) use crate::group::{only, seat};

/// What only the list of targets knows.
pub(super) const TARGETS_NOTE: &str = "the duties of this group come from a list that is not in \
    the store: only duties that were ever granted are known, free ones may be gone from the list, \
    and their zones are not known";

/// A group as it was read.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) name: GroupName,
    pub(super) version: Version,
    pub(super) group: GroupConfig,
    pub(super) members: Vec<Member>,
    pub(super) holders: Vec<Holder>,
}

impl State {
    pub(super) async fn read(store: &dyn Store, name: &GroupName) -> Result<Self, StoreError> {
        let Read { version, group, members, holders } = group::read(store, name).await?;
        Ok(Self { name: name.clone(), version, group: group?, members, holders })
    }

    pub(super) fn layout(&self) -> Option<Layout> {
        self.group.settings.map(|(_, layout)| layout)
    }

    pub(super) fn has_targets(&self) -> bool {
        matches!(self.layout(), Some(Layout::Targets) | None)
    }

    /// Every duty that is known, by id.
    pub(super) fn known(&self) -> BTreeSet<DutyId> {
        let granted = self.holders.iter().map(|holder| holder.duty.id.clone());
        match self.layout() {
            Some(Layout::Shards(count)) => {
                (0..count).filter_map(|n| Layout::shard(n).ok()).collect()
            }
            Some(Layout::Standby) => granted.chain(self.members.iter().filter_map(only)).collect(),
            Some(Layout::Targets) | None => granted.collect(),
        }
    }

    /// Whether a duty is known, or named by an operator.
    pub(super) fn knows(&self, duty: &DutyId) -> bool {
        let granted = self.holders.iter().any(|holder| holder.duty.id == *duty);
        let named = self.group.pins.contains_key(duty) || self.group.paused.contains(duty);
        granted || named || self.known().contains(duty)
    }

    /// Who holds what now.
    pub(super) fn held(&self) -> BTreeMap<DutyId, InstanceId> {
        let held = self.holders.iter().filter_map(|holder| {
            Some((holder.duty.id.clone(), holder.holder.as_ref()?.instance.clone()))
        });
        held.collect()
    }

    pub(super) fn holder(&self, duty: &DutyId) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.duty.id == *duty)
    }

    pub(super) fn member(&self, instance: &InstanceId) -> Option<&Member> {
        self.members.iter().find(|member| member.instance == *instance)
    }

    /// What members plan: all of it together, or each standby duty by itself. A free duty of a list
    /// of targets may be gone from it, so it counts only where it is asked for.
    pub(super) fn pictures(&self, asked: Option<&DutyId>) -> Vec<GroupSnapshot> {
        let held = self.held();
        let picture = |duties: Vec<DutyId>, only: Option<&DutyId>| {
            let listing = Listing::new(duties.into_iter().map(Target::new));
            GroupSnapshot::new(&self.members, &held, &self.group, &listing, only)
        };
        let known = self.known().into_iter();
        match self.layout() {
            Some(Layout::Standby) => {
                known.map(|duty| picture(vec![duty.clone()], Some(&duty))).collect()
            }
            Some(Layout::Shards(_)) => vec![picture(known.collect(), None)],
            Some(Layout::Targets) | None => {
                let counts = |duty: &DutyId| held.contains_key(duty) || asked == Some(duty);
                let known = known.chain(asked.cloned()).filter(counts);
                vec![picture(known.collect(), None)]
            }
        }
    }

    /// The picture that a duty is in.
    pub(super) fn picture_of(&self, duty: &DutyId) -> GroupSnapshot {
        let standby = matches!(self.layout(), Some(Layout::Standby));
        let mut pictures = self.pictures(Some(duty)).into_iter();
        let there = |p: &GroupSnapshot| !standby || p.charges.iter().any(|c| c.duty == *duty);
        pictures.find(there).unwrap_or_else(|| {
            let listing = Listing::default();
            GroupSnapshot::new(&self.members, &BTreeMap::new(), &self.group, &listing, Some(duty))
        })
    }
}

/// What is special about a member, in words.
pub(super) fn standing(member: &Member, group: &GroupConfig) -> Vec<&'static str> {
    let said = MemberStatus::read(&member.note);
    let says = |test: fn(&MemberStatus) -> bool| said.as_ref().is_some_and(test);
    let words = [
        (member.nonce.is_none(), "foreign"),
        (member.nonce.is_some() && said.is_none(), "takes-no-part"),
        (member.evicted, "evicted"),
        (says(|said| !said.keeps) && !member.evicted, "leaving"),
        (says(|said| said.keeps && !said.takes), "waiting"),
        (group.drained.contains_key(&member.instance), "drained"),
        (group.cordoned.contains(&member.instance), "cordoned"),
    ];
    words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect()
}
