//! One process: an engine, its clock and its work.

use std::collections::BTreeMap;

use tenure_core::engine::{Engine, GroupView, Ticket};
use tenure_core::{DutyId, Epoch, InstanceId, Listing, LocalInstant, Session, Ttl};

use super::ScheduledItem;
use crate::Nanos;
use crate::worker::SimWork;

/// A local clock: an origin of its own, and a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalClock {
    origin: u64,
    rate: u64,
}

impl LocalClock {
    /// Creates a clock that starts at `origin` and runs at `rate` millionths of virtual time.
    pub(super) fn new(origin: u64, rate: u64) -> Self {
        Self { origin, rate }
    }

    /// Returns the local time at a virtual instant.
    pub(super) fn local(self, at: Nanos) -> LocalInstant {
        let ran = u128::from(at) * u128::from(self.rate) / 1_000_000;
        LocalInstant::from_nanos(self.origin + ran as u64)
    }

    /// Returns the first virtual instant at which local time is at least this.
    pub(super) fn virtually(self, local: LocalInstant) -> Nanos {
        let ran = u128::from(local.as_nanos().saturating_sub(self.origin));
        u64::try_from((ran * 1_000_000).div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX)
    }
}

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessState {
    Runs,
    /// Paused.
    Paused {
        /// Whether messages sent to it are lost.
        asleep: bool,
    },
    /// Dead or ended.
    Gone,
}

/// One process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: InstanceId,
    pub(super) ttl: Ttl,
    pub(super) slot: usize,
    pub(super) clock: LocalClock,
    pub(super) engine: Engine,
    pub(super) life: ProcessState,
    /// It was asked to leave.
    pub(super) leaves: bool,
    /// An operator has evicted it.
    pub(super) evicted: bool,
    pub(super) work: BTreeMap<(DutyId, Epoch), SimWork>,
    /// Pending requests.
    pub(super) asked: BTreeMap<Ticket, (ProcessKind, Nanos)>,
    /// When the request was sent whose response it processes now.
    pub(super) heard: Nanos,
    /// When it last sent a keep-alive, unless it was paused since then.
    pub(super) renewed: Option<Nanos>,
    /// When it resumed after a pause longer than the margin.
    pub(super) woke: Option<Nanos>,
    /// Whether it was paused for longer than the margin and its engine has not been stepped since.
    pub(super) slept: bool,
    /// The reset that ended its session, and when the session would have ended without it; `None`
    /// after a keep-alive that tells of the reset.
    pub(super) forgotten: Option<(usize, Nanos)>,
    /// Messages that arrived while it was paused.
    pub(super) backlog: Vec<ScheduledItem>,
    /// The virtual instant of the scheduled tick.
    pub(super) tick_at: Option<Nanos>,
    pub(super) hinted: bool,
    /// The incarnation that its store handle knows.
    pub(super) incarnation: u32,
    /// Its newest session.
    pub(super) session: Option<Session>,
    /// Its last look at the group.
    pub(super) view: Option<GroupView>,
    /// Its last list of duties.
    pub(super) targets: Listing,
    /// When it started.
    pub(super) since: Nanos,
    /// Recorded reason for which it got each duty.
    pub(super) acquired: BTreeMap<DutyId, String>,
    /// Number of times that its work on each duty ended by itself.
    pub(super) rested: BTreeMap<DutyId, u32>,
    /// Number of ticks at the current instant, to detect an engine that spins.
    pub(super) spins: u32,
}

/// Kind of a request, for the response to a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessKind {
    Open,
    KeepAlive,
    Claim,
    Release,
    Close,
    Look,
    Settle,
}

impl Process {
    /// Returns the work under a hold.
    pub(super) fn work_of(&mut self, duty: &DutyId, epoch: Epoch) -> Option<&mut SimWork> {
        self.work.get_mut(&(duty.clone(), epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_finds_back() {
        for rate in [500_000, 910_000, 1_000_000, 1_090_000] {
            let clock = LocalClock::new(77, rate);
            for at in [0, 1, 999, 1_000_000_007] {
                let local = clock.local(at);
                assert!(clock.virtually(local) <= at);
                assert_eq!(clock.local(clock.virtually(local)), local);
            }
        }
    }
}
