//! Explains a plan: why each duty is placed where it is.

use super::draft::{is_there, is_usable};
use super::{Plan, RosterDuty, RosterMember, score};

crate::text_enum! {
    /// Reason for or against placing a duty with a member.
    pub enum PlacementReason {
        Pinned "pinned"
            "it is pinned here"
        Keeps "keeps"
            "holds it, and keeps its duties up to its share"
        InZone "in_zone"
            "has the highest score of the members below their share in the zone of the duty"
        Highest "highest"
            "has the highest score of the members below their share"
        ForeignHighest "foreign_highest"
            "has the highest score by the rule of the group's foreign members"
        Drained "drained"
            "holds nothing: it drains, leaves or was evicted"
        NoWeight "no_weight"
            "holds nothing: its weight is 0"
        NoRoom "no_room"
            "holds nothing: it has no room"
        PinnedElsewhere "pinned_elsewhere"
            "it is pinned elsewhere"
        PinnedBeside "pinned_beside"
            "another member that the pin allows has fewer pinned duties or a higher score"
        Surplus "surplus"
            "holds it, but has more than its share and gives up this duty"
        Stays "stays"
            "another member holds it within its share, so it does not move"
        Cordoned "cordoned"
            "takes no more duties: cordoned, or waiting after the store was unreachable or reset"
        HasShare "has_share"
            "the duties that it keeps fill its share"
        OtherZone "other_zone"
            "is in another zone, and a member in the zone of the duty was below its share"
        Lower "lower"
            "has a lower score than the chosen member"
        Filled "filled"
            "its share was filled by other duties first"
        ForeignLower "foreign_lower"
            "has a lower score by the rule of the group's foreign members"
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
    /// Its share, in duties.
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
    duties: &'a [RosterDuty],
    members: &'a [RosterMember],
    plan: &'a Plan,
    foreign: bool,
    /// Number of duties planned for each member, and of those that did not move there.
    given: Vec<usize>,
    kept: Vec<usize>,
}

impl<'a> Explainer<'a> {
    /// Explains `plan` of these duties and members; `foreign`: made by the rule of foreign members.
    pub fn new(
        duties: &'a [RosterDuty],
        members: &'a [RosterMember],
        plan: &'a Plan,
        foreign: bool,
    ) -> Self {
        let (mut given, mut kept) = (vec![0; members.len()], vec![0; members.len()]);
        for (duty, member) in duties.iter().zip(&plan.holders) {
            let Some(member) = *member else { continue };
            let n = member as usize;
            given[n] += 1;
            let pinned = duty.pin.as_ref().is_some_and(|pin| is_there(pin, &members[n]));
            kept[n] += usize::from(duty.holder == Some(member) || pinned);
        }
        Self { duties, members, plan, foreign, given, kept }
    }

    /// Explains for each member why duty `at` is, or is not, placed there.
    pub fn explain(&self, at: usize) -> Vec<PlacementReport> {
        let duty = &self.duties[at];
        let hash = score::of_duty(&duty.duty);
        let score = |member: &RosterMember| match self.foreign {
            true => score::foreign_weight(&duty.duty, &member.instance),
            false => score::of_pair(hash, score::of_member(&member.instance)),
        };
        let case = PlacementCase {
            all: self,
            duty,
            chosen: self.plan.holders[at].map(|member| member as usize),
            holder: duty.holder.map(|member| member as usize),
            scores: self.members.iter().map(score).collect(),
        };
        (0..self.members.len()).map(|member| case.opinion(member)).collect()
    }
}

struct PlacementCase<'a> {
    all: &'a Explainer<'a>,
    duty: &'a RosterDuty,
    chosen: Option<usize>,
    holder: Option<usize>,
    scores: Vec<u64>,
}

impl PlacementCase<'_> {
    fn opinion(&self, member: usize) -> PlacementReport {
        let chosen = self.chosen == Some(member);
        PlacementReport {
            score: self.scores[member],
            share: self.all.plan.quotas[member],
            given: self.all.given[member],
            holds: self.holder == Some(member),
            pin: self.pin(member),
            zone: self.zone(member),
            why: match (self.all.foreign, chosen) {
                (true, true) => PlacementReason::ForeignHighest,
                (true, false) => PlacementReason::ForeignLower,
                (false, true) => self.why_yes(member),
                (false, false) => self.why_no(member),
            },
        }
    }

    fn pin(&self, member: usize) -> Option<bool> {
        self.duty.pin.as_ref().map(|pin| is_there(pin, &self.all.members[member]))
    }

    fn zone(&self, member: usize) -> Option<bool> {
        let zone = self.duty.zone.as_ref()?;
        Some(self.all.members[member].zone.as_ref() == Some(zone))
    }

    fn why_yes(&self, member: usize) -> PlacementReason {
        match () {
            () if self.pin(member) == Some(true) => PlacementReason::Pinned,
            () if self.holder == Some(member) => PlacementReason::Keeps,
            () if self.zone(member) == Some(true) => PlacementReason::InZone,
            () => PlacementReason::Highest,
        }
    }

    fn why_no(&self, n: usize) -> PlacementReason {
        let member = &self.all.members[n];
        if !is_usable(member) || member.room == 0 {
            return match member {
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
            _ if !member.takes => PlacementReason::Cordoned,
            Some(_) if pinned => PlacementReason::PinnedBeside,
            _ if self.all.kept[n] >= self.all.plan.quotas[n] => PlacementReason::HasShare,
            Some(chosen) => self.beaten_by(chosen, n),
            None => PlacementReason::Filled,
        }
    }

    /// Both members were below their share when the duty was placed.
    fn beaten_by(&self, chosen: usize, n: usize) -> PlacementReason {
        match (self.zone(chosen), self.zone(n)) {
            (Some(true), Some(false)) => PlacementReason::OtherZone,
            (Some(false), Some(true)) => PlacementReason::Filled,
            _ if self.scores[n] > self.scores[chosen] => PlacementReason::Filled,
            _ => PlacementReason::Lower,
        }
    }
}
