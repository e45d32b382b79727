//! A plan in the making, in four steps. Everything is an index: names are hashed once and compared
//! only for pins and zones.

use std::collections::BTreeMap;

use super::quota::{self, QuotaBounds};
use super::{Pin, Plan, RosterDuty, RosterMember, score};
use crate::Label;

pub(super) struct PlanDraft<'a> {
    charges: &'a [RosterDuty],
    seats: &'a [RosterMember],
    /// The hash of each duty and of each member.
    duties: Vec<u64>,
    members: Vec<u64>,
    zones: Zones<'a>,
    /// Member that each duty goes to, as far as that is known.
    goes: Vec<Option<u32>>,
    /// Number of duties planned for each member so far.
    given: Vec<usize>,
    quotas: Vec<usize>,
    /// Duties that each member holds and might keep, except those that a pin decided.
    held: Vec<Vec<u32>>,
}

impl<'a> PlanDraft<'a> {
    pub(super) fn new(charges: &'a [RosterDuty], seats: &'a [RosterMember]) -> Self {
        Self {
            charges,
            seats,
            duties: charges.iter().map(|charge| score::of_duty(&charge.duty)).collect(),
            members: seats.iter().map(|seat| score::of_member(&seat.instance)).collect(),
            zones: Zones::new(seats),
            goes: vec![None; charges.len()],
            given: vec![0; seats.len()],
            quotas: Vec::new(),
            held: vec![Vec::new(); seats.len()],
        }
    }

    /// Returns the current holder of a duty, if it is one of these members.
    fn holder(&self, charge: u32) -> Option<u32> {
        self.charges[charge as usize].holder.filter(|seat| (*seat as usize) < self.seats.len())
    }

    fn score(&self, charge: u32, seat: u32) -> u64 {
        score::of_pair(self.duties[charge as usize], self.members[seat as usize])
    }

    fn give(&mut self, charge: u32, seat: u32) {
        self.goes[charge as usize] = Some(seat);
        self.given[seat as usize] += 1;
    }

    /// Step one: what is pinned and in its place stays, what is pinned elsewhere goes there.
    pub(super) fn pin(&mut self) {
        let mut places: BTreeMap<&Pin, Vec<u32>> = BTreeMap::new();
        let mut there: Vec<Vec<u32>> = vec![Vec::new(); self.seats.len()];
        let mut away: Vec<u32> = Vec::new();
        for (n, charge) in (0..).zip(self.charges) {
            let Some(pin) = &charge.pin else { continue };
            let matching = places.entry(pin).or_insert_with(|| matching(pin, self.seats));
            match self.holder(n).filter(|seat| matching.contains(seat)) {
                Some(seat) => there[seat as usize].push(n),
                None => away.push(n),
            }
        }
        for (seat, mut charges) in (0..).zip(there) {
            let room = self.seats[seat as usize].room;
            let surplus = self.take_lowest(&mut charges, room, seat, |_| true);
            charges.iter().for_each(|charge| self.give(*charge, seat));
            away.extend(surplus);
        }
        away.sort_unstable();
        for charge in away {
            let Some(pin) = &self.charges[charge as usize].pin else { continue };
            let with_room = places[pin].iter().copied().filter(|seat| {
                let RosterMember { takes, room, .. } = self.seats[*seat as usize];
                takes && self.given[*seat as usize] < room
            });
            let best = with_room
                .min_by_key(|seat| (self.given[*seat as usize], !self.score(charge, *seat)));
            if let Some(seat) = best {
                self.give(charge, seat);
            }
        }
        for n in 0..self.charges.len() as u32 {
            if let (None, Some(seat)) = (self.goes[n as usize], self.holder(n)) {
                self.held[seat as usize].push(n);
            }
        }
    }

    /// Step two: the shares.
    pub(super) fn share(&mut self) {
        let claim = |(n, seat): (usize, &RosterMember)| {
            let has = self.given[n] + self.held[n].len();
            let most = match (is_usable(seat), seat.takes) {
                (false, _) => 0,
                (true, true) => seat.room,
                (true, false) => seat.room.min(has),
            };
            QuotaBounds { weight: seat.weight, least: self.given[n], most, has }
        };
        let claims: Vec<QuotaBounds> = self.seats.iter().enumerate().map(claim).collect();
        self.quotas = quota::share(self.charges.len(), &claims);
    }

    /// Step three: within its share a seat keeps what it holds. Beyond it, it first gives up what
    /// another zone would rather have and has a place for, then what it scores lowest for.
    pub(super) fn keep(&mut self) {
        let held = std::mem::take(&mut self.held);
        let has = |seat: usize| self.given[seat] + held[seat].len();
        let below: Vec<u32> = (0..self.seats.len() as u32)
            .filter(|n| has(*n as usize) < self.quotas[*n as usize])
            .collect();
        let wanting = self.zones.of_seats(&below);
        for (seat, mut charges) in (0..).zip(held) {
            let room = self.quotas[seat as usize] - self.given[seat as usize];
            let own = self.zones.of_seat[seat as usize];
            let is_at_home = |charge: u32| {
                let zone = self.zones.find(self.charges[charge as usize].zone.as_ref());
                zone.is_none_or(|zone| Some(zone) == own || !wanting[zone])
            };
            self.take_lowest(&mut charges, room, seat, is_at_home);
            charges.iter().for_each(|charge| self.give(*charge, seat));
        }
    }

    /// Step four: what goes nowhere yet goes to seats below their share.
    pub(super) fn place(&mut self) {
        let homeless = |n: &u32| self.goes[*n as usize].is_none();
        let all = 0..self.charges.len() as u32;
        // When there is not room for all, what somebody does now goes before what nobody does.
        let (mut waiting, free): (Vec<u32>, Vec<u32>) =
            all.filter(homeless).partition(|n| self.holder(*n).is_some());
        waiting.extend(free);
        let places = self.quotas.iter().sum::<usize>() - self.given.iter().sum::<usize>();
        waiting.truncate(places);

        // Those with a zone choose first, lest others take their places.
        let mut open: Vec<OpenMembers> = vec![OpenMembers::default(); self.zones.names.len()];
        for seat in self.below_share() {
            if let Some(zone) = self.zones.of_seat[seat as usize] {
                open[zone].push(seat, self.members[seat as usize]);
            }
        }
        let mut anywhere = Vec::with_capacity(waiting.len());
        for charge in waiting {
            match self.zones.find(self.charges[charge as usize].zone.as_ref()) {
                Some(zone) if !open[zone].seats.is_empty() => {
                    self.place_in(&mut open[zone], charge);
                }
                _ => anywhere.push(charge),
            }
        }
        let mut open = OpenMembers::default();
        for seat in self.below_share() {
            open.push(seat, self.members[seat as usize]);
        }
        for charge in anywhere {
            self.place_in(&mut open, charge);
        }
    }

    fn below_share(&self) -> Vec<u32> {
        let is_below = |seat: &u32| self.given[*seat as usize] < self.quotas[*seat as usize];
        (0..self.seats.len() as u32).filter(is_below).collect()
    }

    /// Gives a charge to the open seat with the highest score, which closes once it has its share.
    fn place_in(&mut self, open: &mut OpenMembers, charge: u32) {
        let Some(best) = open.best(self.duties[charge as usize]) else { return };
        let seat = open.seats[best];
        self.give(charge, seat);
        if self.given[seat as usize] >= self.quotas[seat as usize] {
            open.remove(best);
        }
    }

    /// Leaves `most` of the charges and returns the others: those that are not at home first, then
    /// those with the lowest score.
    fn take_lowest(
        &self,
        charges: &mut Vec<u32>,
        most: usize,
        seat: u32,
        is_at_home: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        if charges.len() <= most {
            return Vec::new();
        }
        let surplus = charges.len() - most;
        if most == 0 {
            return std::mem::take(charges);
        }
        let mut ranked: Vec<(bool, u64, u32)> =
            charges.iter().map(|n| (is_at_home(*n), self.score(*n, seat), *n)).collect();
        ranked.select_nth_unstable(surplus);
        let mut ranked = ranked.into_iter().map(|(_, _, n)| n);
        let lowest = ranked.by_ref().take(surplus).collect();
        *charges = ranked.collect();
        lowest
    }

    pub(super) fn finish(self) -> Plan {
        Plan { seats: self.goes, quotas: self.quotas }
    }
}

/// Whether a seat may hold anything at all.
pub(super) fn is_usable(seat: &RosterMember) -> bool {
    seat.keeps && seat.weight > 0
}

pub(super) fn is_there(pin: &Pin, seat: &RosterMember) -> bool {
    match pin {
        Pin::Instance(instance) => seat.instance == *instance,
        Pin::Name(name) => seat.name.as_ref() == Some(name),
        Pin::Zone(zone) => seat.zone.as_ref() == Some(zone),
    }
}

fn matching(pin: &Pin, seats: &[RosterMember]) -> Vec<u32> {
    let seats = (0..).zip(seats).filter(|(_, seat)| is_usable(seat) && is_there(pin, seat));
    seats.map(|(n, _)| n).collect()
}

/// The zones of the seats, as numbers.
struct Zones<'a> {
    names: Vec<&'a Label>,
    of_seat: Vec<Option<usize>>,
}

impl<'a> Zones<'a> {
    fn new(seats: &'a [RosterMember]) -> Self {
        let mut names: Vec<&Label> = seats.iter().filter_map(|seat| seat.zone.as_ref()).collect();
        names.sort_unstable();
        names.dedup();
        let mut zones = Self { names, of_seat: Vec::new() };
        zones.of_seat = seats.iter().map(|seat| zones.find(seat.zone.as_ref())).collect();
        zones
    }

    /// `None` also for a zone in which nobody is.
    fn find(&self, zone: Option<&Label>) -> Option<usize> {
        self.names.binary_search(&zone?).ok()
    }

    /// For each zone, whether one of these seats is in it.
    fn of_seats(&self, seats: &[u32]) -> Vec<bool> {
        let mut there = vec![false; self.names.len()];
        for zone in seats.iter().filter_map(|seat| self.of_seat[*seat as usize]) {
            there[zone] = true;
        }
        there
    }
}

/// Seats below their share, in their order, and beside them the hashes of their members.
#[derive(Clone, Default)]
struct OpenMembers {
    seats: Vec<u32>,
    members: Vec<u64>,
}

impl OpenMembers {
    fn push(&mut self, seat: u32, member: u64) {
        self.seats.push(seat);
        self.members.push(member);
    }

    fn remove(&mut self, n: usize) {
        self.seats.remove(n);
        self.members.remove(n);
    }

    /// Returns the index of the member with the highest score for a duty; the first of equals.
    fn best(&self, duty: u64) -> Option<usize> {
        // Of equals `max_by_key` returns the last.
        let members = self.members.iter().enumerate().rev();
        members.max_by_key(|(_, member)| score::of_pair(duty, **member)).map(|(n, _)| n)
    }
}
