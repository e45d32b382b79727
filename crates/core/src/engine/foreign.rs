//! Giving duties away while foreign members are there: by their rule, to whom the plain hash
//! prefers. Our own members say whether they take duties; a foreign one shows it by taking them.

use std::collections::BTreeMap;

use super::Engine;
use super::balance::{Table, full_seats};
use super::work::Work;
use crate::roster::Charge;
use crate::{DutyId, InstanceId, LocalInstant};

/// What this member knows of foreign members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Guests {
    known: BTreeMap<InstanceId, Guest>,
    /// Duties released for a foreign member, until somebody holds them.
    offered: BTreeMap<DutyId, InstanceId>,
    /// Duties that a foreign member did not take: they are not offered to it again.
    spurned: BTreeMap<DutyId, InstanceId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Guest {
    since: LocalInstant,
    holds: usize,
    /// How much it held when it left an offer to others: it gets no other before that grows.
    spurned_at: Option<usize>,
}

impl Guests {
    /// Sees who is there.
    fn meet(&mut self, charges: &[Charge], table: &Table, now: LocalInstant) {
        let mut before = std::mem::take(&mut self.known);
        for (seat, _) in (0..).zip(&table.all.theirs).filter(|(_, theirs)| **theirs) {
            let instance = &table.seats()[seat as usize].instance;
            let first = Guest { since: now, holds: 0, spurned_at: None };
            let mut guest = before.remove(instance).unwrap_or(first);
            guest.holds = charges.iter().filter(|charge| charge.holder == Some(seat)).count();
            guest.spurned_at = guest.spurned_at.filter(|held| guest.holds <= *held);
            self.known.insert(instance.clone(), guest);
        }
        self.spurned.retain(|_, to| self.known.contains_key(to));
    }

    /// Somebody holds what was offered.
    fn settle(&mut self, duty: &DutyId, holder: &InstanceId) {
        let Some(to) = self.offered.remove(duty).filter(|to| to != holder) else { return };
        if let Some(guest) = self.known.get_mut(&to) {
            guest.spurned_at = Some(guest.holds);
            self.spurned.insert(duty.clone(), to);
        }
    }

    /// Whether to release a duty for a foreign member. One that is new may be in its start-up, and
    /// one that holds nothing may never take anything: it is tried with one duty first.
    fn may_offer(&self, duty: &DutyId, to: &InstanceId, since: LocalInstant) -> bool {
        let Some(guest) = self.known.get(to).filter(|guest| guest.since <= since) else {
            return false;
        };
        let untried = guest.holds == 0 && self.offered.values().any(|waits| waits == to);
        guest.spurned_at.is_none() && !untried && self.spurned.get(duty) != Some(to)
    }
}

impl Engine {
    /// Sees which foreign members are there, and what became of what was released for them.
    pub(super) fn meet_guests(&mut self, charges: &[Charge], table: &Table, now: LocalInstant) {
        if !table.all.foreign {
            return self.guests = Guests::default();
        }
        self.guests.meet(charges, table, now);
        let offered: Vec<_> = self.guests.offered.keys().cloned().collect();
        for duty in offered {
            let leaves = self.holds.get(&duty).is_some_and(|held| held.release.is_some());
            let holder = self.seen.as_ref().and_then(|seen| seen.holders.get(&duty)?.clone());
            if let (false, Some(holder)) = (leaves, holder) {
                self.guests.settle(&duty, &holder);
            }
        }
    }

    /// Gives away what the foreign rule gives to another who will take it, not all at once (R25).
    /// Whatever has come stays for the window (R19): what foreign members see is not known, and
    /// duties must not go to and fro.
    pub(super) fn shed_by_their_rule(
        &mut self,
        charges: &[Charge],
        plan: &[Option<u32>],
        table: &Table,
        fresh: bool,
        now: LocalInstant,
    ) {
        let window = self.settings.window.as_nanos() as u64;
        let since = LocalInstant::from_nanos(now.as_nanos().saturating_sub(window));
        let full = full_seats(charges, table);
        let mut room = self.room_to_move();
        for (charge, to) in charges.iter().zip(plan) {
            // Pins are ours: a foreign member knows nothing of them.
            let mine = charge.holder == Some(table.me) && charge.pin.is_none();
            let Some(to) = to.filter(|to| mine && *to != table.me) else { continue };
            let (seat, theirs) = (&table.seats()[to as usize], table.all.theirs[to as usize]);
            let takes = seat.takes && seat.keeps && seat.weight > 0 && !full[to as usize];
            let settled = self.holds.get(&charge.duty).is_some_and(|held| {
                held.work == Work::Running && held.release.is_none() && held.since <= since
            });
            let offer = || self.guests.may_offer(&charge.duty, &seat.instance, since);
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
            self.ask_to_stop(&charge.duty, "balance", now);
        }
    }
}
