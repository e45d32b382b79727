//! The network between the processes and the store.

use crate::Nanos;
use crate::rng::SimRng;
use crate::scenario::{Fault, Scenario};

/// Directions that are cut between a machine and the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkPartition {
    /// Requests are lost.
    pub requests: bool,
    /// Replies are lost.
    pub replies: bool,
    /// Only every second message is lost.
    pub flapping: bool,
}

/// Fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives after this time.
    Arrives(Nanos),
    /// It is lost.
    Lost,
    /// The sender gets an error at once.
    Refused,
}

/// The network.
#[derive(Debug)]
pub struct SimLink {
    delay: Nanos,
    ttl: Nanos,
    quiet_from: Nanos,
    loses_replies: bool,
    reorders: bool,
    duplicates: bool,
    partitions: Vec<NetworkPartition>,
    listens: Vec<bool>,
}

impl SimLink {
    /// Creates a network with the faults of this scenario, for this many machines.
    pub fn new(scenario: &Scenario, slots: usize) -> Self {
        Self {
            delay: scenario.delay,
            ttl: scenario.ttl_ns(),
            quiet_from: scenario.quiet_from,
            loses_replies: scenario.has(Fault::ReplyLost),
            reorders: scenario.has(Fault::Reorder),
            duplicates: scenario.has(Fault::Duplicate),
            partitions: vec![NetworkPartition::default(); slots],
            listens: vec![true; slots],
        }
    }

    /// Partitions a machine, or heals it.
    pub fn set(&mut self, slot: usize, partition: NetworkPartition) {
        self.partitions[slot] = partition;
    }

    /// Breaks a machine's watch, or reconnects it.
    pub fn listen(&mut self, slot: usize, listens: bool) {
        self.listens[slot] = listens;
    }

    /// Whether hints do not reach a machine.
    pub fn is_cut(&self, slot: usize) -> bool {
        let partition = self.partitions[slot];
        partition.replies || partition.requests || !self.listens[slot]
    }

    /// Draws the latency of a message. It is bounded, so that no message sent before faults end
    /// arrives long after.
    pub fn takes(&self, now: Nanos, rng: &mut SimRng) -> Nanos {
        let usual = rng.between(self.delay / 10, self.delay);
        if !self.reorders || now >= self.quiet_from {
            return usual;
        }
        let late = match rng.below(100) {
            0..2 => rng.below(2 * self.ttl),
            2..12 => rng.below(self.ttl / 4),
            _ => 0,
        };
        usual + late.min(self.quiet_from - now)
    }

    /// Decides the fate of a request.
    pub fn request(&self, slot: usize, now: Nanos, rng: &mut SimRng) -> Fate {
        let cut = self.partitions[slot];
        if cut.requests && !(cut.flapping && rng.chance(500)) {
            return if rng.chance(300) { Fate::Refused } else { Fate::Lost };
        }
        Fate::Arrives(self.takes(now, rng))
    }

    /// Returns after what time a request arrives a second time, if it does.
    pub fn again(&self, now: Nanos, rng: &mut SimRng) -> Option<Nanos> {
        if !self.duplicates || now >= self.quiet_from || !rng.chance(50) {
            return None;
        }
        let most = (self.ttl * 2).min(self.quiet_from - now);
        Some(rng.below(most) >> rng.below(8))
    }

    /// Decides the fate of a reply.
    pub fn reply(&self, slot: usize, now: Nanos, rng: &mut SimRng) -> Fate {
        let cut = self.partitions[slot];
        let cut_off = cut.replies && !(cut.flapping && rng.chance(500));
        let lost = self.loses_replies && now < self.quiet_from && rng.chance(50);
        match cut_off || lost {
            true => Fate::Lost,
            false => Fate::Arrives(self.takes(now, rng)),
        }
    }
}
