//! Who should hold what: a pure function of duties, members and who holds what now (R1).
//!
//! Its answer is advice. A member sheds only its own surplus and claims only what is free, so
//! members that see different things for a moment never wait for each other's room; the store
//! alone grants.

use crate::{DutyId, InstanceId, Label};

/// A member that may hold duties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
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
    /// Where it runs.
    pub zone: Option<Label>,
    /// A name that outlives its process.
    pub name: Option<Label>,
}

/// Where a duty must be, as an operator decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pin {
    /// With this instance.
    Instance(InstanceId),
    /// With a member of this name.
    Name(Label),
    /// With a member in this zone.
    Zone(Label),
}

/// A duty that somebody is to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The duty.
    pub duty: DutyId,
    /// Who holds it now: an index into the seats; `None` when it is free, or held by somebody who
    /// has no seat.
    pub holder: Option<u32>,
    /// Where it would best be: decides which duties move when some must, and moves none by itself.
    pub zone: Option<Label>,
    /// Where it must be. While nobody there can take it, anybody may.
    pub pin: Option<Pin>,
}

/// Who should hold what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// For each charge, in their order, the seat that should hold it; `None` when nobody has room.
    pub seats: Vec<Option<u32>>,
    /// For each seat, how many duties are its share.
    pub quotas: Vec<usize>,
}

/// Plans the charges over the seats. Both are sorted by name.
pub fn plan(_charges: &[Charge], _seats: &[Seat]) -> Plan {
    Plan::default()
}

/// The seats in the order in which they should try for a duty that stays free: those that take
/// duties, best score first.
pub fn order(_duty: &DutyId, _seats: &[Seat]) -> Vec<u32> {
    Vec::new()
}
