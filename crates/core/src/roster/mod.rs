//! Roster: plans which member should hold each duty, as a pure function of duties, members and
//! current holders (R1).
//!
//! Its answer is advice. A member sheds only its own surplus and claims only what is free, so
//! members that see different things for a moment never wait for each other's room; the store
//! alone grants.
//!
//! Why: docs/decisions/0004-roster-is-advice.md

mod draft;
mod explain;
mod quota;
mod score;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::fmt;

use self::draft::PlanDraft;
pub use self::explain::{Explainer, PlacementReason, PlacementReport};
pub use self::score::foreign_owner;
use crate::{DutyId, InstanceId, Label};

/// A member that may hold duties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterMember {
    /// The instance.
    pub instance: InstanceId,
    /// Its share beside the others; zero takes nothing.
    pub weight: u32,
    /// The most duties that it will hold.
    pub room: usize,
    /// Whether it may be given more than it holds.
    pub takes: bool,
    /// Whether it may keep what it holds; a member that drains may not.
    pub keeps: bool,
    /// The zone in which it runs.
    pub zone: Option<Label>,
    /// A name that outlives its process.
    pub name: Option<Label>,
}

/// Placement of a duty that an operator decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pin {
    /// With this instance.
    Instance(InstanceId),
    /// With a member of this name.
    Name(Label),
    /// With a member in this zone.
    Zone(Label),
}

/// As it stands in the document of the group.
impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(instance) => write!(f, "instance:{instance}"),
            Self::Name(name) => write!(f, "name:{name}"),
            Self::Zone(zone) => write!(f, "zone:{zone}"),
        }
    }
}

/// A duty that somebody is to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterDuty {
    /// The duty.
    pub duty: DutyId,
    /// The current holder, as an index into the members; `None` when it is free, or held by an
    /// instance that is not among them.
    pub holder: Option<u32>,
    /// Preferred zone: decides which duties move when some must, and moves none by itself.
    pub zone: Option<Label>,
    /// Required placement. While no matching member can take the duty, any member may.
    pub pin: Option<Pin>,
}

/// The planned holder of each duty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// For each charge, in their order, the seat that should hold it; `None` when nobody has room.
    pub seats: Vec<Option<u32>>,
    /// For each seat, how many duties are its share.
    pub quotas: Vec<usize>,
}

/// Plans the charges over the seats. Both are sorted by name, so that all members who see the same
/// plan the same.
///
/// - A seat's share is its part of the weights, by Webster's method; pins, room and cordons bound
///   it. Shares do not depend on names unless two seats are equal in everything else.
/// - Pins come first. Then a seat keeps what it holds up to its share, and gives up the rest.
/// - What is free or given up goes to seats below their share, to the zone of the duty first, then
///   to the highest score.
///
/// Once a plan is carried out, the next one is the same.
pub fn plan(charges: &[RosterDuty], seats: &[RosterMember]) -> Plan {
    debug_assert!(charges.is_sorted_by_key(|charge| &charge.duty), "charges are not sorted");
    debug_assert!(seats.is_sorted_by_key(|seat| &seat.instance), "seats are not sorted");
    let mut draft = PlanDraft::new(charges, seats);
    draft.pin();
    draft.share();
    draft.keep();
    draft.place();
    draft.finish()
}

/// The seats in the order in which they should try for a duty that stays free: those that take
/// duties, best score first.
pub fn order(duty: &DutyId, seats: &[RosterMember]) -> Vec<u32> {
    let duty = score::of_duty(duty);
    let mut order: Vec<(Reverse<u64>, &InstanceId, u32)> = (0..)
        .zip(seats)
        .filter(|(_, seat)| seat.takes && seat.keeps && seat.weight > 0)
        .map(|(n, seat)| {
            let score = score::of_pair(duty, score::of_member(&seat.instance));
            (Reverse(score), &seat.instance, n)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, _, n)| n).collect()
}
