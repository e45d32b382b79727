//! Schedule of faults, decided by a seed before anything runs.

use std::fmt;
use std::time::Duration;

use crate::store::ChaosStore;

/// Fault. Slots are places of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaosFault {
    /// An instance is killed by `kill -9`; another one starts in its slot afterwards.
    Kill(usize),
    /// An instance is stopped for longer than the TTL, and continues.
    Stop(usize),
    /// An instance is asked to leave; another one starts in its slot afterwards.
    Leave(usize),
    /// One more instance joins for a while.
    Guest,
    /// Every connection to the store ends at once.
    Drop,
    /// All data takes this many milliseconds longer, in both directions.
    Delay(u64),
    /// Requests are held back, and arrive when the fault ends.
    HoleRequests,
    /// Replies are held back.
    HoleReplies,
    /// Requests and replies are held back.
    HoleBoth,
    /// The server is killed by `kill -9` and started again on its data.
    Server,
    /// Another process keeps the file locked.
    Lock,
}

/// Part of the system that a fault needs for itself while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultScope {
    Slot(usize),
    Guest,
    Store,
}

impl ChaosFault {
    /// Returns its name in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kill(_) => "kill",
            Self::Stop(_) => "stop",
            Self::Leave(_) => "leave",
            Self::Guest => "join",
            Self::Drop => "drop",
            Self::Delay(_) => "delay",
            Self::HoleRequests => "hole-requests",
            Self::HoleReplies => "hole-replies",
            Self::HoleBoth => "hole-both",
            Self::Server => "server",
            Self::Lock => "lock",
        }
    }

    fn part(self) -> FaultScope {
        match self {
            Self::Kill(slot) | Self::Stop(slot) | Self::Leave(slot) => FaultScope::Slot(slot),
            Self::Guest => FaultScope::Guest,
            _ => FaultScope::Store,
        }
    }

    /// Returns the range of its duration, in tenths of the TTL.
    fn tenths(self) -> (u64, u64) {
        match self {
            Self::Stop(_) => (12, 20),
            Self::Kill(_) | Self::Leave(_) => (2, 15),
            Self::Guest => (10, 25),
            Self::Drop => (0, 0),
            Self::Delay(_) => (5, 15),
            // From shorter to longer than a holder can bridge.
            _ => (3, 14),
        }
    }
}

/// A fault with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// Time since the start.
    pub at: Duration,
    /// Duration of the fault.
    pub lasts: Duration,
    /// The fault.
    pub fault: ChaosFault,
}

impl fmt::Display for PlannedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, lasts) = (self.at.as_secs_f64(), self.lasts.as_secs_f64());
        write!(f, "{at:7.2} s  {:<13}", self.fault.word())?;
        match self.fault {
            ChaosFault::Kill(slot) | ChaosFault::Stop(slot) | ChaosFault::Leave(slot) => {
                write!(f, " #{slot}")?;
            }
            ChaosFault::Delay(by) => write!(f, " by {by} ms")?,
            _ => {}
        }
        if lasts > 0.0 { write!(f, " for {lasts:.2} s") } else { Ok(()) }
    }
}

/// Returns the faults of a run; the same for the same arguments.
pub fn schedule(
    seed: u64,
    kind: ChaosStore,
    length: Duration,
    ttl: Duration,
    slots: usize,
) -> Vec<PlannedFault> {
    let mut rng = ScheduleRng::new(seed ^ kind as u64);
    let mut planned: Vec<PlannedFault> = Vec::new();
    let mut deck: Vec<ChaosFault> = Vec::new();
    let mut at = Duration::ZERO;
    loop {
        at += Duration::from_millis(rng.between(200, 1_000));
        if at >= length {
            return planned;
        }
        if deck.is_empty() {
            deck = deal(&mut rng, kind, slots);
        }
        // After a fault of the store the group needs time, so that the next one finds holds.
        let rest =
            |part: FaultScope| if part == FaultScope::Store { ttl / 2 } else { Duration::ZERO };
        let busy = |part: FaultScope| {
            let of = |one: &&PlannedFault| one.fault.part() == part;
            planned.iter().filter(of).any(|one| one.at + one.lasts + rest(part) > at)
        };
        // A fault that cannot happen now comes later, so that each deck is used up.
        let Some(index) = deck.iter().position(|fault| !busy(fault.part())) else { continue };
        let fault = deck.remove(index);
        let (low, high) = fault.tenths();
        let lasts = ttl / 10 * u32::try_from(rng.between(low, high)).unwrap_or(0);
        planned.push(PlannedFault { at, lasts, fault });
    }
}

/// Returns each kind of fault once, and common kinds more often, in random order.
fn deal(rng: &mut ScheduleRng, kind: ChaosStore, slots: usize) -> Vec<ChaosFault> {
    let slot = |rng: &mut ScheduleRng| rng.below(slots as u64) as usize;
    let mut deck = vec![
        ChaosFault::Kill(slot(rng)),
        ChaosFault::Kill(slot(rng)),
        ChaosFault::Stop(slot(rng)),
        ChaosFault::Stop(slot(rng)),
        ChaosFault::Leave(slot(rng)),
        ChaosFault::Guest,
    ];
    match kind {
        ChaosStore::Sqlite => deck.extend([ChaosFault::Lock, ChaosFault::Lock, ChaosFault::Lock]),
        _ => deck.extend([
            ChaosFault::Drop,
            ChaosFault::Delay(rng.between(50, 400)),
            ChaosFault::HoleRequests,
            ChaosFault::HoleReplies,
            ChaosFault::HoleBoth,
            ChaosFault::Server,
        ]),
    }
    for index in (1..deck.len()).rev() {
        deck.swap(index, rng.below(index as u64 + 1) as usize);
    }
    deck
}

/// SplitMix64: small, and the same on every machine.
#[derive(Debug)]
pub(crate) struct ScheduleRng(u64);

impl ScheduleRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }
}
