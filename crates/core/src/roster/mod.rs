//! Roster: plans which member should hold each duty, as a pure function of duties, members and
//! current holders (R1).
//!
//! A plan is advice; only the store grants. A member releases only its own surplus and claims only
//! what is free, so members with different views never wait for each other.
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
    /// Weight of its share relative to the other members; zero takes nothing.
    pub weight: u32,
    /// The most duties that it will hold.
    pub room: usize,
    /// Whether it may be given more than it holds.
    pub takes: bool,
    /// Whether it may keep what it holds; a member that drains may not.
    pub keeps: bool,
    /// The zone in which it runs.
    pub zone: Option<Label>,
    /// A name that stays the same across restarts.
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

/// The form in the group document.
impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(instance) => write!(f, "instance:{instance}"),
            Self::Name(name) => write!(f, "name:{name}"),
            Self::Zone(zone) => write!(f, "zone:{zone}"),
        }
    }
}

/// A duty to place.
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
    /// For each duty, in order, the member that should hold it; `None` if no member has room.
    pub holders: Vec<Option<u32>>,
    /// The share of each member, in duties.
    pub quotas: Vec<usize>,
}

/// Plans the duties over the members. Both are sorted by name, so that members with the same view
/// make the same plan.
///
/// - A member's share is its part of the weights, by Webster's method; pins, room and cordons bound
///   it. Shares do not depend on names unless two members are equal in everything else.
/// - Pins come first. Then a member keeps what it holds up to its share, and gives up the rest.
/// - Remaining duties go to members below their share: in the duty's zone first, then by highest
///   score.
///
/// Once a plan is carried out, the next plan changes nothing.
pub fn plan(duties: &[RosterDuty], members: &[RosterMember]) -> Plan {
    debug_assert!(duties.is_sorted_by_key(|duty| &duty.duty), "duties are not sorted");
    debug_assert!(members.is_sorted_by_key(|member| &member.instance), "members are not sorted");
    let mut draft = PlanDraft::new(duties, members);
    draft.pin();
    draft.share();
    draft.keep();
    draft.place();
    draft.finish()
}

/// Returns the members that take duties in the order in which they should claim a duty that stays
/// free: highest score first.
pub fn order(duty: &DutyId, members: &[RosterMember]) -> Vec<u32> {
    let duty = score::of_duty(duty);
    let mut order: Vec<(Reverse<u64>, &InstanceId, u32)> = (0..)
        .zip(members)
        .filter(|(_, member)| member.takes && member.keeps && member.weight > 0)
        .map(|(n, member)| {
            let score = score::of_pair(duty, score::of_member(&member.instance));
            (Reverse(score), &member.instance, n)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, _, n)| n).collect()
}
