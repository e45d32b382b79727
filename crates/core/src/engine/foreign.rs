//! Releases for foreign members, by their rule: plain hashing. Our members publish whether they
//! take duties; a foreign member shows it only by taking them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::balance::{OwnPlan, PlannedDuty};
use super::work::{RestPeriod, WorkState};
use super::{Engine, StopReason};
use crate::roster::RosterDuty;
use crate::{DutyId, InstanceId, LocalInstant};

/// Windows without an offer after a foreign member has ignored one; doubled each time.
const MIN_REST_WINDOWS: u32 = 4;
/// Limit of a rest, as a multiple of the first.
const MAX_REST_WINDOWS: u32 = 1 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ForeignMembers {
    known: BTreeMap<InstanceId, ForeignMember>,
    /// Duties released for a foreign member that nobody holds yet.
    offered: BTreeMap<DutyId, InstanceId>,
    /// Duties that a foreign member did not take, and when they may be offered again.
    declined: BTreeMap<DutyId, (InstanceId, RestPeriod)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ForeignMember {
    since: LocalInstant,
    holds: usize,
    /// Set when it ignored an offer, until it takes a duty.
    rest: Option<RestPeriod>,
}

impl ForeignMembers {
    /// Updates the known foreign members and what they hold.
    fn update(&mut self, plan: &OwnPlan, now: LocalInstant) {
        let mut before = std::mem::take(&mut self.known);
        let (roster, duties) = (&plan.roster, &plan.duties);
        for (member, _) in (0..).zip(&roster.all.theirs).filter(|(_, theirs)| **theirs) {
            let instance = &roster.members()[member as usize].instance;
            let holds = duties.iter().filter(|one| one.duty.holder == Some(member)).count();
            let first = ForeignMember { since: now, holds, rest: None };
            let other = before.remove(instance).unwrap_or(first);
            self.known.insert(instance.clone(), ForeignMember { holds, ..other });
        }
        // Nobody takes a duty that was paused or is gone.
        let Self { known, offered, declined } = self;
        let stands = |duty: &DutyId, to: &InstanceId| {
            let planned = duties.binary_search_by(|one| one.duty.duty.cmp(duty));
            planned.is_ok() && known.contains_key(to)
        };
        offered.retain(|duty, to| stands(duty, to));
        declined.retain(|duty, (to, _)| stands(duty, to));
    }

    /// An offered duty has a holder. Another duty may be offered before the same one again.
    fn settle(&mut self, duty: &DutyId, holder: &InstanceId, first: Duration, now: LocalInstant) {
        let Some(to) = self.offered.remove(duty) else { return };
        let Some(other) = self.known.get_mut(&to) else { return };
        if to == *holder {
            other.rest = None;
            self.declined.remove(duty);
            return;
        }
        // It rests already if it ignored another of several duties offered together.
        if !rests(other.rest, now) {
            other.rest = Some(next_rest(other.rest, first, now));
        }
        let before = self.declined.get(duty).filter(|(by, _)| *by == to).map(|(_, rest)| *rest);
        self.declined.insert(duty.clone(), (to, next_rest(before, first * 2, now)));
    }

    /// Whether to release a duty for a foreign member. A new member may still be starting; one that
    /// holds nothing is offered a single duty first.
    fn may_offer(
        &self,
        duty: &DutyId,
        to: &InstanceId,
        since: LocalInstant,
        now: LocalInstant,
    ) -> bool {
        let Some(other) = self.known.get(to).filter(|other| other.since <= since) else {
            return false;
        };
        let tried = other.holds > 0 && other.rest.is_none();
        let waits = self.offered.values().any(|waits| waits == to);
        let declined = self.declined.get(duty).filter(|(by, _)| by == to).map(|(_, rest)| *rest);
        (tried || !waits) && !rests(other.rest, now) && !rests(declined, now)
    }
}

fn rests(rest: Option<RestPeriod>, now: LocalInstant) -> bool {
    rest.is_some_and(|rest| now < rest.until)
}

fn next_rest(before: Option<RestPeriod>, first: Duration, now: LocalInstant) -> RestPeriod {
    let length = before.map_or(first, |before| (before.length * 2).min(first * MAX_REST_WINDOWS));
    RestPeriod { until: now.plus(length), length }
}

impl Engine {
    /// Updates the foreign members, and the outcome of what was released for them.
    pub(super) fn update_foreign(&mut self, plan: &OwnPlan, now: LocalInstant) {
        if !plan.roster.all.foreign {
            return self.foreign = ForeignMembers::default();
        }
        self.foreign.update(plan, now);
        let offered: Vec<_> = self.foreign.offered.keys().cloned().collect();
        for duty in offered {
            let leaves = self.holds.get(&duty).is_some_and(|held| held.release.is_some());
            let holder = self.seen.as_ref().and_then(|seen| seen.holders.get(&duty)?.clone());
            if let (false, Some(holder)) = (leaves, holder) {
                self.foreign.settle(&duty, &holder, self.settings.window * MIN_REST_WINDOWS, now);
            }
        }
    }

    /// Gives away what the foreign rule assigns to a member that takes it: not all at once (R25)
    /// and not within the window (R19), because the views of foreign members are not known.
    pub(super) fn shed_by_their_rule(&mut self, plan: &OwnPlan, fresh: bool, now: LocalInstant) {
        let OwnPlan { roster, duties } = plan;
        let window = self.settings.window.as_nanos() as u64;
        let since = LocalInstant::from_nanos(now.as_nanos().saturating_sub(window));
        let full = plan.full_members();
        // A duty that waits for a foreign member counts as moving.
        let mut room = self.room_to_move().saturating_sub(self.foreign.offered.len());
        for PlannedDuty { duty: RosterDuty { duty, holder, pin, .. }, to, .. } in duties {
            // Foreign members do not know about pins.
            let mine = *holder == Some(roster.me) && pin.is_none();
            let Some(to) = to.filter(|to| mine && *to != roster.me) else { continue };
            let (member, theirs) = (&roster.members()[to as usize], roster.all.theirs[to as usize]);
            let takes = member.takes && member.keeps && member.weight > 0 && !full[to as usize];
            let settled = self.holds.get(duty).is_some_and(|held| {
                held.work == WorkState::Running && held.release.is_none() && held.since <= since
            });
            let offer = || self.foreign.may_offer(duty, &member.instance, since, now);
            if !takes || !settled || room == 0 || (theirs && !offer()) {
                continue;
            }
            if !fresh {
                return self.look_now(now);
            }
            if theirs {
                self.foreign.offered.insert(duty.clone(), member.instance.clone());
            }
            room -= 1;
            self.shed.insert(duty.clone(), now);
            self.ask_to_stop(duty, StopReason::Balance, now);
        }
    }
}
