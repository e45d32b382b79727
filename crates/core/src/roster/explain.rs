//! Explains a plan: why each duty is placed where it is.

use super::draft::{is_there, is_usable};
use super::{Plan, RosterDuty, RosterMember, score};

crate::text_enum! {
    /// Reason for or against placing a duty with a member.
    pub enum PlacementReason {
        Pinned "pinned"
            "it is pinned here"
        Keeps "keeps"
            "holds it, and keeps what it holds up to its share"
        InZone "in_zone"
            "scores highest of those below their share in the zone of the duty"
        Highest "highest"
            "scores highest of those below their share"
        ForeignHighest "foreign_highest"
            "scores highest by the rule of foreign members, of which the group has some"
        Drained "drained"
            "holds nothing: it drains, leaves or was evicted"
        NoWeight "no_weight"
            "holds nothing: its weight is 0"
        NoRoom "no_room"
            "holds nothing: it has room for none"
        PinnedElsewhere "pinned_elsewhere"
            "it is pinned elsewhere"
        PinnedBeside "pinned_beside"
            "the pin allows it, and another that it allows has fewer pinned duties or scores higher"
        Surplus "surplus"
            "holds it and has more than its share: of what it holds it gives up this one"
        Stays "stays"
            "another holds it within its share, and nothing moves without need"
        Cordoned "cordoned"
            "takes nothing more: it is cordoned, or waits after a loss of the store"
        HasShare "has_share"
            "has its share with what it keeps"
        OtherZone "other_zone"
            "is in another zone, and one in the zone of the duty was below its share"
        Lower "lower"
            "scores lower than the one chosen"
        Filled "filled"
            "its share was filled by other duties first"
        ForeignLower "foreign_lower"
            "scores lower by the rule of foreign members, of which the group has some"
    }
}

impl PlacementReason {
    /// Whether it decided for the member.
    pub const fn is_yes(self) -> bool {
        use PlacementReason::{ForeignHighest, Highest, InZone, Keeps, Pinned};
        matches!(self, Pinned | Keeps | InZone | Highest | ForeignHighest)
    }
}

/// Assessment of one member for one duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementReport {
    /// Rendezvous score; the highest wins where scores decide.
    pub score: u64,
    /// Number of duties that are its share.
    pub share: usize,
    /// Number of duties that the plan gives to it.
    pub given: usize,
    /// Whether it holds the duty now.
    pub holds: bool,
    /// Whether the pin of the duty names it; `None` when it is not pinned.
    pub pin: Option<bool>,
    /// Whether it is in the zone of the duty; `None` when it has none.
    pub zone: Option<bool>,
    /// The deciding reason.
    pub why: PlacementReason,
}

/// Explains why duties are planned where they are.
#[derive(Debug)]
pub struct Explainer<'a> {
    charges: &'a [RosterDuty],
    seats: &'a [RosterMember],
    plan: &'a Plan,
    foreign: bool,
    /// Number of duties planned for each member, and of those that did not move there.
    given: Vec<usize>,
    kept: Vec<usize>,
}

impl<'a> Explainer<'a> {
    /// The plan is that of these charges and seats; `foreign`: by the rule of foreign members.
    pub fn new(
        charges: &'a [RosterDuty],
        seats: &'a [RosterMember],
        plan: &'a Plan,
        foreign: bool,
    ) -> Self {
        let (mut given, mut kept) = (vec![0; seats.len()], vec![0; seats.len()]);
        for (charge, seat) in charges.iter().zip(&plan.seats) {
            let Some(seat) = *seat else { continue };
            let n = seat as usize;
            given[n] += 1;
            let pinned = charge.pin.as_ref().is_some_and(|pin| is_there(pin, &seats[n]));
            kept[n] += usize::from(charge.holder == Some(seat) || pinned);
        }
        Self { charges, seats, plan, foreign, given, kept }
    }

    /// For each seat why charge `at` is, or is not, planned there.
    pub fn explain(&self, at: usize) -> Vec<PlacementReport> {
        let charge = &self.charges[at];
        let duty = score::of_duty(&charge.duty);
        let score = |seat: &RosterMember| match self.foreign {
            true => score::foreign_weight(&charge.duty, &seat.instance),
            false => score::of_pair(duty, score::of_member(&seat.instance)),
        };
        let case = PlacementCase {
            all: self,
            charge,
            chosen: self.plan.seats[at].map(|seat| seat as usize),
            holder: charge.holder.map(|seat| seat as usize),
            scores: self.seats.iter().map(score).collect(),
        };
        (0..self.seats.len()).map(|seat| case.opinion(seat)).collect()
    }
}

struct PlacementCase<'a> {
    all: &'a Explainer<'a>,
    charge: &'a RosterDuty,
    chosen: Option<usize>,
    holder: Option<usize>,
    scores: Vec<u64>,
}

impl PlacementCase<'_> {
    fn opinion(&self, seat: usize) -> PlacementReport {
        let chosen = self.chosen == Some(seat);
        PlacementReport {
            score: self.scores[seat],
            share: self.all.plan.quotas[seat],
            given: self.all.given[seat],
            holds: self.holder == Some(seat),
            pin: self.pin(seat),
            zone: self.zone(seat),
            why: match (self.all.foreign, chosen) {
                (true, true) => PlacementReason::ForeignHighest,
                (true, false) => PlacementReason::ForeignLower,
                (false, true) => self.why_yes(seat),
                (false, false) => self.why_no(seat),
            },
        }
    }

    fn pin(&self, seat: usize) -> Option<bool> {
        self.charge.pin.as_ref().map(|pin| is_there(pin, &self.all.seats[seat]))
    }

    fn zone(&self, seat: usize) -> Option<bool> {
        let zone = self.charge.zone.as_ref()?;
        Some(self.all.seats[seat].zone.as_ref() == Some(zone))
    }

    fn why_yes(&self, seat: usize) -> PlacementReason {
        match () {
            () if self.pin(seat) == Some(true) => PlacementReason::Pinned,
            () if self.holder == Some(seat) => PlacementReason::Keeps,
            () if self.zone(seat) == Some(true) => PlacementReason::InZone,
            () => PlacementReason::Highest,
        }
    }

    fn why_no(&self, n: usize) -> PlacementReason {
        let seat = &self.all.seats[n];
        if !is_usable(seat) || seat.room == 0 {
            return match seat {
                RosterMember { keeps: false, .. } => PlacementReason::Drained,
                RosterMember { weight: 0, .. } => PlacementReason::NoWeight,
                _ => PlacementReason::NoRoom,
            };
        }
        let (holds, stays) = (self.holder == Some(n), self.chosen == self.holder);
        let pinned = self.chosen.is_some_and(|chosen| self.pin(chosen) == Some(true));
        match self.chosen {
            Some(_) if pinned && self.pin(n) == Some(false) => PlacementReason::PinnedElsewhere,
            _ if holds => PlacementReason::Surplus,
            Some(_) if stays => PlacementReason::Stays,
            _ if !seat.takes => PlacementReason::Cordoned,
            Some(_) if pinned => PlacementReason::PinnedBeside,
            _ if self.all.kept[n] >= self.all.plan.quotas[n] => PlacementReason::HasShare,
            Some(chosen) => self.beaten_by(chosen, n),
            None => PlacementReason::Filled,
        }
    }

    /// Both were below their share when the duty was to go somewhere.
    fn beaten_by(&self, chosen: usize, n: usize) -> PlacementReason {
        match (self.zone(chosen), self.zone(n)) {
            (Some(true), Some(false)) => PlacementReason::OtherZone,
            (Some(false), Some(true)) => PlacementReason::Filled,
            _ if self.scores[n] > self.scores[chosen] => PlacementReason::Filled,
            _ => PlacementReason::Lower,
        }
    }
}
