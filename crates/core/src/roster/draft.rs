//! Plan under construction, in four steps. Members and duties are indexes: names are hashed once,
//! and compared only for pins and zones.

use std::collections::BTreeMap;

use super::quota::{self, QuotaBounds};
use super::{Pin, Plan, RosterDuty, RosterMember, score};
use crate::Label;

pub(super) struct PlanDraft<'a> {
    duties: &'a [RosterDuty],
    members: &'a [RosterMember],
    duty_hashes: Vec<u64>,
    member_hashes: Vec<u64>,
    zones: Zones<'a>,
    /// Member chosen for each duty so far.
    goes: Vec<Option<u32>>,
    /// Number of duties planned for each member so far.
    given: Vec<usize>,
    quotas: Vec<usize>,
    /// Duties that each member holds and might keep, except those that a pin decided.
    held: Vec<Vec<u32>>,
}

impl<'a> PlanDraft<'a> {
    pub(super) fn new(duties: &'a [RosterDuty], members: &'a [RosterMember]) -> Self {
        Self {
            duties,
            members,
            duty_hashes: duties.iter().map(|duty| score::of_duty(&duty.duty)).collect(),
            member_hashes: members
                .iter()
                .map(|member| score::of_member(&member.instance))
                .collect(),
            zones: Zones::new(members),
            goes: vec![None; duties.len()],
            given: vec![0; members.len()],
            quotas: Vec::new(),
            held: vec![Vec::new(); members.len()],
        }
    }

    /// Returns the current holder of a duty, if it is one of these members.
    fn holder(&self, duty: u32) -> Option<u32> {
        self.duties[duty as usize].holder.filter(|member| (*member as usize) < self.members.len())
    }

    fn score(&self, duty: u32, member: u32) -> u64 {
        score::of_pair(self.duty_hashes[duty as usize], self.member_hashes[member as usize])
    }

    fn give(&mut self, duty: u32, member: u32) {
        self.goes[duty as usize] = Some(member);
        self.given[member as usize] += 1;
    }

    /// Step one: a duty whose holder matches its pin stays; other pinned duties go to a match.
    pub(super) fn pin(&mut self) {
        let mut places: BTreeMap<&Pin, Vec<u32>> = BTreeMap::new();
        let mut there: Vec<Vec<u32>> = vec![Vec::new(); self.members.len()];
        let mut away: Vec<u32> = Vec::new();
        for (n, duty) in (0..).zip(self.duties) {
            let Some(pin) = &duty.pin else { continue };
            let matching = places.entry(pin).or_insert_with(|| matching(pin, self.members));
            match self.holder(n).filter(|member| matching.contains(member)) {
                Some(member) => there[member as usize].push(n),
                None => away.push(n),
            }
        }
        for (member, mut duties) in (0..).zip(there) {
            let room = self.members[member as usize].room;
            let surplus = self.take_lowest(&mut duties, room, member, |_| true);
            duties.iter().for_each(|duty| self.give(*duty, member));
            away.extend(surplus);
        }
        away.sort_unstable();
        for duty in away {
            let Some(pin) = &self.duties[duty as usize].pin else { continue };
            let with_room = places[pin].iter().copied().filter(|member| {
                let RosterMember { takes, room, .. } = self.members[*member as usize];
                takes && self.given[*member as usize] < room
            });
            let best = with_room
                .min_by_key(|member| (self.given[*member as usize], !self.score(duty, *member)));
            if let Some(member) = best {
                self.give(duty, member);
            }
        }
        for n in 0..self.duties.len() as u32 {
            if let (None, Some(member)) = (self.goes[n as usize], self.holder(n)) {
                self.held[member as usize].push(n);
            }
        }
    }

    /// Step two: computes the share of each member.
    pub(super) fn share(&mut self) {
        let claim = |(n, member): (usize, &RosterMember)| {
            let has = self.given[n] + self.held[n].len();
            let most = match (is_usable(member), member.takes) {
                (false, _) => 0,
                (true, true) => member.room,
                (true, false) => member.room.min(has),
            };
            QuotaBounds { weight: member.weight, least: self.given[n], most, has }
        };
        let claims: Vec<QuotaBounds> = self.members.iter().enumerate().map(claim).collect();
        self.quotas = quota::share(self.duties.len(), &claims);
    }

    /// Step three: a member keeps what it holds up to its share. It gives up the rest: first duties
    /// whose preferred zone is another one with a place for them, then those with its lowest score.
    pub(super) fn keep(&mut self) {
        let held = std::mem::take(&mut self.held);
        let has = |member: usize| self.given[member] + held[member].len();
        let below: Vec<u32> = (0..self.members.len() as u32)
            .filter(|n| has(*n as usize) < self.quotas[*n as usize])
            .collect();
        let wanting = self.zones.of_members(&below);
        for (member, mut duties) in (0..).zip(held) {
            let room = self.quotas[member as usize] - self.given[member as usize];
            let own = self.zones.of_member[member as usize];
            let is_at_home = |duty: u32| {
                let zone = self.zones.find(self.duties[duty as usize].zone.as_ref());
                zone.is_none_or(|zone| Some(zone) == own || !wanting[zone])
            };
            self.take_lowest(&mut duties, room, member, is_at_home);
            duties.iter().for_each(|duty| self.give(*duty, member));
        }
    }

    /// Step four: distributes the remaining duties over members below their share.
    pub(super) fn place(&mut self) {
        let homeless = |n: &u32| self.goes[*n as usize].is_none();
        let all = 0..self.duties.len() as u32;
        // If there is not room for all, duties that have a holder now come first.
        let (mut waiting, free): (Vec<u32>, Vec<u32>) =
            all.filter(homeless).partition(|n| self.holder(*n).is_some());
        waiting.extend(free);
        let places = self.quotas.iter().sum::<usize>() - self.given.iter().sum::<usize>();
        waiting.truncate(places);

        // Duties with a zone choose first, before others take their places.
        let mut open: Vec<OpenMembers> = vec![OpenMembers::default(); self.zones.names.len()];
        for member in self.below_share() {
            if let Some(zone) = self.zones.of_member[member as usize] {
                open[zone].push(member, self.member_hashes[member as usize]);
            }
        }
        let mut anywhere = Vec::with_capacity(waiting.len());
        for duty in waiting {
            match self.zones.find(self.duties[duty as usize].zone.as_ref()) {
                Some(zone) if !open[zone].members.is_empty() => {
                    self.place_in(&mut open[zone], duty);
                }
                _ => anywhere.push(duty),
            }
        }
        let mut open = OpenMembers::default();
        for member in self.below_share() {
            open.push(member, self.member_hashes[member as usize]);
        }
        for duty in anywhere {
            self.place_in(&mut open, duty);
        }
    }

    fn below_share(&self) -> Vec<u32> {
        let is_below = |member: &u32| self.given[*member as usize] < self.quotas[*member as usize];
        (0..self.members.len() as u32).filter(is_below).collect()
    }

    /// Gives a duty to the open member with the highest score, and closes it once it has its share.
    fn place_in(&mut self, open: &mut OpenMembers, duty: u32) {
        let Some(best) = open.best(self.duty_hashes[duty as usize]) else { return };
        let member = open.members[best];
        self.give(duty, member);
        if self.given[member as usize] >= self.quotas[member as usize] {
            open.remove(best);
        }
    }

    /// Removes all but `most` of the duties and returns the removed: first those not at home, then
    /// those with the lowest score.
    fn take_lowest(
        &self,
        duties: &mut Vec<u32>,
        most: usize,
        member: u32,
        is_at_home: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        if duties.len() <= most {
            return Vec::new();
        }
        let surplus = duties.len() - most;
        if most == 0 {
            return std::mem::take(duties);
        }
        let mut ranked: Vec<(bool, u64, u32)> =
            duties.iter().map(|n| (is_at_home(*n), self.score(*n, member), *n)).collect();
        ranked.select_nth_unstable(surplus);
        let mut ranked = ranked.into_iter().map(|(_, _, n)| n);
        let lowest = ranked.by_ref().take(surplus).collect();
        *duties = ranked.collect();
        lowest
    }

    pub(super) fn finish(self) -> Plan {
        Plan { holders: self.goes, quotas: self.quotas }
    }
}

/// Whether a member may hold anything at all.
pub(super) fn is_usable(member: &RosterMember) -> bool {
    member.keeps && member.weight > 0
}

pub(super) fn is_there(pin: &Pin, member: &RosterMember) -> bool {
    match pin {
        Pin::Instance(instance) => member.instance == *instance,
        Pin::Name(name) => member.name.as_ref() == Some(name),
        Pin::Zone(zone) => member.zone.as_ref() == Some(zone),
    }
}

fn matching(pin: &Pin, members: &[RosterMember]) -> Vec<u32> {
    let members =
        (0..).zip(members).filter(|(_, member)| is_usable(member) && is_there(pin, member));
    members.map(|(n, _)| n).collect()
}

/// The zones of the members, as numbers.
struct Zones<'a> {
    names: Vec<&'a Label>,
    of_member: Vec<Option<usize>>,
}

impl<'a> Zones<'a> {
    fn new(members: &'a [RosterMember]) -> Self {
        let mut names: Vec<&Label> =
            members.iter().filter_map(|member| member.zone.as_ref()).collect();
        names.sort_unstable();
        names.dedup();
        let mut zones = Self { names, of_member: Vec::new() };
        zones.of_member = members.iter().map(|member| zones.find(member.zone.as_ref())).collect();
        zones
    }

    /// Returns the number of a zone; `None` if no member is in it.
    fn find(&self, zone: Option<&Label>) -> Option<usize> {
        self.names.binary_search(&zone?).ok()
    }

    /// For each zone, whether one of these members is in it.
    fn of_members(&self, members: &[u32]) -> Vec<bool> {
        let mut there = vec![false; self.names.len()];
        for zone in members.iter().filter_map(|member| self.of_member[*member as usize]) {
            there[zone] = true;
        }
        there
    }
}

/// Members below their share, in order, and their hashes.
#[derive(Clone, Default)]
struct OpenMembers {
    members: Vec<u32>,
    hashes: Vec<u64>,
}

impl OpenMembers {
    fn push(&mut self, member: u32, hash: u64) {
        self.members.push(member);
        self.hashes.push(hash);
    }

    fn remove(&mut self, n: usize) {
        self.members.remove(n);
        self.hashes.remove(n);
    }

    /// Returns the index of the member with the highest score for a duty; the first of equals.
    fn best(&self, duty: u64) -> Option<usize> {
        // `max_by_key` returns the last of equals.
        let hashes = self.hashes.iter().enumerate().rev();
        hashes.max_by_key(|(_, hash)| score::of_pair(duty, **hash)).map(|(n, _)| n)
    }
}
