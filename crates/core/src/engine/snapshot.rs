//! Snapshot of a group from which duties are planned: members, holders, configuration and duties.
//! Pure, and the same for members and for commands that explain a plan.

use std::collections::BTreeMap;

use super::{GroupConfig, MemberStatus};
use crate::roster::{self, Explainer, PlacementReport, Plan, RosterDuty, RosterMember};
use crate::store::Member;
use crate::{DutyId, InstanceId, Listing, Nonce, Target};

/// A group and its plan, as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSnapshot {
    /// The members that duties are planned over, by instance.
    pub members: Vec<RosterMember>,
    /// The planned duties, by id: not paused, and not held by an instance outside of `members`.
    pub duties: Vec<RosterDuty>,
    /// The planned holder of each duty.
    pub plan: Plan,
    /// The group has foreign members, so their placement rule applies.
    pub foreign: bool,
}

impl GroupSnapshot {
    /// Plans as the members do. `only`: plans among the members that joined for this one duty.
    pub fn new(
        members: &[Member],
        holders: &BTreeMap<DutyId, InstanceId>,
        group: &GroupConfig,
        listing: &Listing,
        only: Option<&DutyId>,
    ) -> Self {
        let table = RosterInput::new(members, group, only, None);
        let now = |duty: &DutyId| match holders.get(duty) {
            None => DutyStatus::Free,
            Some(instance) => {
                table.index_of(instance).map_or(DutyStatus::Outside, DutyStatus::Held)
            }
        };
        let (duties, _) = planned_duties(listing.targets(), group, now);
        let plan = table.plan(&duties);
        Self { members: table.members, duties, plan, foreign: table.foreign }
    }

    /// Returns an explainer of this plan.
    pub fn explainer(&self) -> Explainer<'_> {
        Explainer::new(&self.duties, &self.members, &self.plan, self.foreign)
    }

    /// Explains the placement of a duty, with a report per member; `None` if it is not planned.
    pub fn explain(&self, duty: &DutyId) -> Option<Vec<PlacementReport>> {
        Some(self.explainer().explain(self.find(duty)?))
    }

    /// Returns the planned holder of a duty; `None` if it is not planned or no member has room.
    pub fn owner(&self, duty: &DutyId) -> Option<&RosterMember> {
        self.plan.holders[self.find(duty)?].and_then(|member| self.members.get(member as usize))
    }

    fn find(&self, duty: &DutyId) -> Option<usize> {
        self.duties.binary_search_by(|planned| planned.duty.cmp(duty)).ok()
    }
}

/// The members that duties are planned over.
#[derive(Debug)]
pub(super) struct RosterInput {
    pub(super) members: Vec<RosterMember>,
    /// Status of each of them.
    said: Vec<MemberStatus>,
    /// Which of them are foreign members.
    pub(super) theirs: Vec<bool>,
    /// Index of the planning member.
    pub(super) me: Option<u32>,
    pub(super) foreign: bool,
}

impl RosterInput {
    /// `me`: session and current status of the planning member; the store may have an older status.
    pub(super) fn new(
        members: &[Member],
        group: &GroupConfig,
        only: Option<&DutyId>,
        me: Option<(Nonce, &MemberStatus)>,
    ) -> Self {
        let (planned, said, theirs) = (Vec::new(), Vec::new(), Vec::new());
        let mut table = Self { members: planned, said, theirs, me: None, foreign: false };
        for member in members {
            let mine = me.filter(|(nonce, _)| member.nonce == Some(*nonce));
            let foreign = member.nonce.is_none();
            table.foreign |= foreign;
            let said = match mine {
                Some((_, status)) => Some(status.clone()),
                None => MemberStatus::read(&member.note),
            };
            let said = said.or_else(|| foreign.then(|| MemberStatus::with_room(usize::MAX)));
            let Some(said) = said.filter(|said| said.only.as_ref() == only) else { continue };
            if mine.is_some() {
                table.me = u32::try_from(table.members.len()).ok();
            }
            let mut planned = said.clone().roster_member(member);
            group.adjust(&mut planned);
            table.members.push(planned);
            table.said.push(said);
            table.theirs.push(foreign);
        }
        table.let_failing_give_way();
        table
    }

    /// Status of each member, in order; `None` for foreign members.
    pub(super) fn ours(&self) -> impl Iterator<Item = Option<&MemberStatus>> {
        self.said.iter().zip(&self.theirs).map(|(said, theirs)| (!theirs).then_some(said))
    }

    /// Takes failing members out of the plan, unless no other member could take their duties.
    fn let_failing_give_way(&mut self) {
        let members = self.members.iter_mut().zip(&self.said);
        let (failing, others): (Vec<_>, Vec<_>) = members.partition(|(_, said)| said.failing);
        if others.iter().any(|(member, _)| member.takes && member.weight > 0 && member.room > 0) {
            for (member, _) in failing {
                (member.takes, member.keeps) = (false, false);
            }
        }
    }

    pub(super) fn index_of(&self, instance: &InstanceId) -> Option<u32> {
        let found = self.members.binary_search_by(|member| member.instance.cmp(instance)).ok()?;
        u32::try_from(found).ok()
    }

    pub(super) fn plan(&self, duties: &[RosterDuty]) -> Plan {
        match self.foreign {
            true => foreign_plan(duties, &self.members),
            false => roster::plan(duties, &self.members),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum DutyStatus {
    /// It has no holder.
    Free,
    /// It is free, and this member is claiming it.
    Coming(u32),
    /// This member holds it.
    Held(u32),
    /// Its holder is giving it up: neither kept nor free.
    Leaving,
    /// An instance outside of the plan holds it.
    Outside,
}

/// The duties to plan, and which of them are free.
pub(super) fn planned_duties(
    targets: &[Target],
    group: &GroupConfig,
    now: impl Fn(&DutyId) -> DutyStatus,
) -> (Vec<RosterDuty>, Vec<bool>) {
    let (mut duties, mut free) = (Vec::new(), Vec::new());
    for target in targets {
        if target.paused || group.pauses(&target.id) {
            continue;
        }
        let (holder, is_free) = match now(&target.id) {
            DutyStatus::Outside => continue,
            DutyStatus::Free => (None, true),
            // A claim under way counts, or another duty would be claimed in its place.
            DutyStatus::Coming(member) => (Some(member), true),
            DutyStatus::Held(member) => (Some(member), false),
            DutyStatus::Leaving => (None, false),
        };
        free.push(is_free);
        duties.push(RosterDuty {
            duty: target.id.clone(),
            holder,
            zone: target.zone.clone(),
            pin: group.pins.get(&target.id).cloned(),
        });
    }
    (duties, free)
}

/// The plan that foreign members expect: plain rendezvous hashing.
fn foreign_plan(duties: &[RosterDuty], members: &[RosterMember]) -> Plan {
    let instances: Vec<_> = members.iter().map(|member| member.instance.clone()).collect();
    let mut quotas = vec![0; members.len()];
    let owner = |duty: &RosterDuty| {
        let owner = roster::foreign_owner(&duty.duty, &instances)?;
        quotas[owner] += 1;
        u32::try_from(owner).ok()
    };
    Plan { holders: duties.iter().map(owner).collect(), quotas }
}
