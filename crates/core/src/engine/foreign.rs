//! Giving duties away while foreign members are there: by their rule, to whom the plain hash
//! prefers. Our own members say whether they take duties; a foreign one shows it by taking them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::balance::{OwnRoster, full_seats};
use super::work::{RestPeriod, WorkState};
use super::{Engine, StopReason};
use crate::roster::RosterDuty;
use crate::{DutyId, InstanceId, LocalInstant};

/// Initial number of windows in which a foreign member gets no offer after it ignored one. It
/// doubles each time that the member ignores another before it takes something.
const MIN_REST_WINDOWS: u32 = 4;
/// The longest rest, in first rests.
const MAX_REST_WINDOWS: u32 = 1 << 10;

/// Foreign members as this member knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ForeignMembers {
    known: BTreeMap<InstanceId, ForeignMember>,
    /// Duties released for a foreign member, until somebody holds them.
    offered: BTreeMap<DutyId, InstanceId>,
    /// Duties that a foreign member did not take, and how long it is not offered them again.
    spurned: BTreeMap<DutyId, (InstanceId, RestPeriod)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ForeignMember {
    since: LocalInstant,
    holds: usize,
    /// It left an offer to others, and has taken none since.
    rest: Option<RestPeriod>,
}

impl ForeignMembers {
    /// Sees who is there, and how much it holds.
    fn meet(&mut self, charges: &[RosterDuty], table: &OwnRoster, now: LocalInstant) {
        let mut before = std::mem::take(&mut self.known);
        for (seat, _) in (0..).zip(&table.all.theirs).filter(|(_, theirs)| **theirs) {
            let instance = &table.seats()[seat as usize].instance;
            let holds = charges.iter().filter(|charge| charge.holder == Some(seat)).count();
            let first = ForeignMember { since: now, holds, rest: None };
            let guest = before.remove(instance).unwrap_or(first);
            self.known.insert(instance.clone(), ForeignMember { holds, ..guest });
        }
        // Not what was paused or is gone: nobody takes that.
        let Self { known, offered, spurned } = self;
        let stands = |duty: &DutyId, to: &InstanceId| {
            let planned = charges.binary_search_by(|charge| charge.duty.cmp(duty));
            planned.is_ok() && known.contains_key(to)
        };
        offered.retain(|duty, to| stands(duty, to));
        spurned.retain(|duty, (to, _)| stands(duty, to));
    }

    /// Somebody holds what was offered. Another duty may be tried before the same one again.
    fn settle(&mut self, duty: &DutyId, holder: &InstanceId, first: Duration, now: LocalInstant) {
        let Some(to) = self.offered.remove(duty) else { return };
        let Some(guest) = self.known.get_mut(&to) else { return };
        if to == *holder {
            guest.rest = None;
            self.spurned.remove(duty);
            return;
        }
        // It rests already if it has left one of several that were offered together.
        if !rests(guest.rest, now) {
            guest.rest = Some(next_rest(guest.rest, first, now));
        }
        let before = self.spurned.get(duty).filter(|(by, _)| *by == to).map(|(_, rest)| *rest);
        self.spurned.insert(duty.clone(), (to, next_rest(before, first * 2, now)));
    }

    /// Whether to release a duty for a foreign member. One that is new may be in its start-up, and
    /// one that holds nothing may never take anything: it is tried with one duty first.
    fn may_offer(
        &self,
        duty: &DutyId,
        to: &InstanceId,
        since: LocalInstant,
        now: LocalInstant,
    ) -> bool {
        let Some(guest) = self.known.get(to).filter(|guest| guest.since <= since) else {
            return false;
        };
        let tried = guest.holds > 0 && guest.rest.is_none();
        let waits = self.offered.values().any(|waits| waits == to);
        let spurned = self.spurned.get(duty).filter(|(by, _)| by == to).map(|(_, rest)| *rest);
        (tried || !waits) && !rests(guest.rest, now) && !rests(spurned, now)
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
    /// Sees which foreign members are there, and what became of what was released for them.
    pub(super) fn meet_guests(
        &mut self,
        charges: &[RosterDuty],
        table: &OwnRoster,
        now: LocalInstant,
    ) {
        if !table.all.foreign {
            return self.guests = ForeignMembers::default();
        }
        self.guests.meet(charges, table, now);
        let offered: Vec<_> = self.guests.offered.keys().cloned().collect();
        for duty in offered {
            let leaves = self.holds.get(&duty).is_some_and(|held| held.release.is_some());
            let holder = self.seen.as_ref().and_then(|seen| seen.holders.get(&duty)?.clone());
            if let (false, Some(holder)) = (leaves, holder) {
                self.guests.settle(&duty, &holder, self.settings.window * MIN_REST_WINDOWS, now);
            }
        }
    }

    /// Gives away what the foreign rule gives to another who will take it, not all at once (R25).
    /// Whatever has come stays for the window (R19): what foreign members see is not known, and
    /// duties must not go to and fro.
    pub(super) fn shed_by_their_rule(
        &mut self,
        charges: &[RosterDuty],
        plan: &[Option<u32>],
        table: &OwnRoster,
        fresh: bool,
        now: LocalInstant,
    ) {
        let window = self.settings.window.as_nanos() as u64;
        let since = LocalInstant::from_nanos(now.as_nanos().saturating_sub(window));
        let full = full_seats(charges, table);
        // What waits for a foreign member is on its way, too.
        let mut room = self.room_to_move().saturating_sub(self.guests.offered.len());
        for (charge, to) in charges.iter().zip(plan) {
            // Pins are ours: a foreign member knows nothing of them.
            let mine = charge.holder == Some(table.me) && charge.pin.is_none();
            let Some(to) = to.filter(|to| mine && *to != table.me) else { continue };
            let (seat, theirs) = (&table.seats()[to as usize], table.all.theirs[to as usize]);
            let takes = seat.takes && seat.keeps && seat.weight > 0 && !full[to as usize];
            let settled = self.holds.get(&charge.duty).is_some_and(|held| {
                held.work == WorkState::Running && held.release.is_none() && held.since <= since
            });
            let offer = || self.guests.may_offer(&charge.duty, &seat.instance, since, now);
            if !takes || !settled || room == 0 || (theirs && !offer()) {
                continue;
            }
            if !fresh {
                return self.look_now(now);
            }
            if theirs {
                self.guests.offered.insert(charge.duty.clone(), seat.instance.clone());
            }
            room -= 1;
            self.shed.insert(charge.duty.clone(), now);
            self.ask_to_stop(&charge.duty, StopReason::Balance, now);
        }
    }
}
