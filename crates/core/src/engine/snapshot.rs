//! Snapshot of a group from which duties are planned: members, holders, configuration and duties.
//! Pure, and the same for members and for commands that explain a plan.

use std::collections::BTreeMap;

use super::{GroupConfig, MemberStatus};
use crate::roster::{self, Explainer, PlacementReport, Plan, RosterDuty, RosterMember};
use crate::store::Member;
use crate::{DutyId, InstanceId, Listing, Nonce, Target};

/// A group and its plan, as somebody sees it who is not a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSnapshot {
    /// The members that duties are planned over, by instance.
    pub seats: Vec<RosterMember>,
    /// The planned duties, by id: not paused, and not held by an instance outside of `seats`.
    pub charges: Vec<RosterDuty>,
    /// The planned holder of each duty.
    pub plan: Plan,
    /// The group has foreign members, so their rule counts.
    pub foreign: bool,
}

impl GroupSnapshot {
    /// Plans as the members do. `only`: the duty of members that joined for one duty alone, which
    /// plan among themselves.
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
            Some(instance) => table.seat_of(instance).map_or(DutyStatus::Outside, DutyStatus::Held),
        };
        let (charges, _) = charges(listing.targets(), group, now);
        let plan = table.plan(&charges);
        Self { seats: table.seats, charges, plan, foreign: table.foreign }
    }

    /// Returns an explainer of this plan.
    pub fn explainer(&self) -> Explainer<'_> {
        Explainer::new(&self.charges, &self.seats, &self.plan, self.foreign)
    }

    /// Explains the placement of a duty, with a report per member; `None` when it is not planned.
    pub fn explain(&self, duty: &DutyId) -> Option<Vec<PlacementReport>> {
        Some(self.explainer().explain(self.find(duty)?))
    }

    /// Returns the planned holder of a duty; `None` when it is not planned, or nobody has room.
    pub fn owner(&self, duty: &DutyId) -> Option<&RosterMember> {
        self.plan.seats[self.find(duty)?].and_then(|seat| self.seats.get(seat as usize))
    }

    fn find(&self, duty: &DutyId) -> Option<usize> {
        self.charges.binary_search_by(|charge| charge.duty.cmp(duty)).ok()
    }
}

/// The members that count.
#[derive(Debug)]
pub(super) struct RosterInput {
    pub(super) seats: Vec<RosterMember>,
    /// Status of each of them.
    said: Vec<MemberStatus>,
    /// Which of them are foreign members.
    pub(super) theirs: Vec<bool>,
    /// The index of the one who plans.
    pub(super) me: Option<u32>,
    pub(super) foreign: bool,
}

impl RosterInput {
    /// `me`: the session of the planning member and its current status; the store's may be older.
    pub(super) fn new(
        members: &[Member],
        group: &GroupConfig,
        only: Option<&DutyId>,
        me: Option<(Nonce, &MemberStatus)>,
    ) -> Self {
        let (seats, said, theirs) = (Vec::new(), Vec::new(), Vec::new());
        let mut table = Self { seats, said, theirs, me: None, foreign: false };
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
                table.me = u32::try_from(table.seats.len()).ok();
            }
            let mut seat = said.clone().seat(member);
            group.adjust(&mut seat);
            table.seats.push(seat);
            table.said.push(said);
            table.theirs.push(foreign);
        }
        table.let_failing_give_way();
        table
    }

    /// Notes of our own members, in the order of the seats.
    pub(super) fn ours(&self) -> impl Iterator<Item = Option<&MemberStatus>> {
        self.said.iter().zip(&self.theirs).map(|(said, theirs)| (!theirs).then_some(said))
    }

    /// Makes failing members give way. When all fail, the duties stay where they are.
    fn let_failing_give_way(&mut self) {
        let seats = self.seats.iter_mut().zip(&self.said);
        let (failing, others): (Vec<_>, Vec<_>) = seats.partition(|(_, said)| said.failing);
        if others.iter().any(|(seat, _)| seat.takes && seat.weight > 0 && seat.room > 0) {
            for (seat, _) in failing {
                (seat.takes, seat.keeps) = (false, false);
            }
        }
    }

    pub(super) fn seat_of(&self, instance: &InstanceId) -> Option<u32> {
        let found = self.seats.binary_search_by(|seat| seat.instance.cmp(instance)).ok()?;
        u32::try_from(found).ok()
    }

    pub(super) fn plan(&self, charges: &[RosterDuty]) -> Plan {
        match self.foreign {
            true => foreign_plan(charges, &self.seats),
            false => roster::plan(charges, &self.seats),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum DutyStatus {
    /// Nobody holds it.
    Free,
    /// It is free, and this seat has asked for it.
    Coming(u32),
    /// This seat holds it.
    Held(u32),
    /// It is on its way out: not kept, and not free either.
    Leaving,
    /// Somebody holds it who has no seat: it is nobody's to plan.
    Outside,
}

/// The duties to plan, and which of them are free.
pub(super) fn charges(
    targets: &[Target],
    group: &GroupConfig,
    now: impl Fn(&DutyId) -> DutyStatus,
) -> (Vec<RosterDuty>, Vec<bool>) {
    let (mut charges, mut free) = (Vec::new(), Vec::new());
    for target in targets {
        if target.paused || group.pauses(&target.id) {
            continue;
        }
        let (holder, is_free) = match now(&target.id) {
            DutyStatus::Outside => continue,
            DutyStatus::Free => (None, true),
            // What is being claimed counts already: else one more is claimed in its place.
            DutyStatus::Coming(seat) => (Some(seat), true),
            DutyStatus::Held(seat) => (Some(seat), false),
            DutyStatus::Leaving => (None, false),
        };
        free.push(is_free);
        charges.push(RosterDuty {
            duty: target.id.clone(),
            holder,
            zone: target.zone.clone(),
            pin: group.pins.get(&target.id).cloned(),
        });
    }
    (charges, free)
}

/// The plan that foreign members expect: plain rendezvous hashing.
fn foreign_plan(charges: &[RosterDuty], seats: &[RosterMember]) -> Plan {
    let members: Vec<_> = seats.iter().map(|seat| seat.instance.clone()).collect();
    let mut quotas = vec![0; seats.len()];
    let owner = |charge: &RosterDuty| {
        let owner = roster::foreign_owner(&charge.duty, &members)?;
        quotas[owner] += 1;
        u32::try_from(owner).ok()
    };
    Plan { seats: charges.iter().map(owner).collect(), quotas }
}
