//! Scenario of a seed: everything that is decided before the run begins.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::engine::{Layout, MemberSettings};
use tenure_core::roster::Pin;
use tenure_core::{DutyId, Label, Ttl};

use crate::Nanos;
use crate::rng::SimRng;

macro_rules! text_enum {
    ($(#[$doc:meta])* $type:ident { $($(#[$item:meta])* $name:ident $text:literal)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $type { $($(#[$item])* $name,)* }

        impl $type {
            /// All values, in order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the word in traces and tables.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

pub(crate) use text_enum;

text_enum! {
    /// Kind of store to simulate.
    Kind {
        /// PostgreSQL or SQLite: linearizable, and nothing is ever lost.
        Durable "durable"
        /// etcd: sessions live longer after a change of leader, and may be revoked early.
        Etcd "etcd"
        /// Redis with AOF: a restart ends all sessions, and each handle learns of it once.
        RedisAof "redis-aof"
        /// A store whose failover loses the last writes.
        Lossy "lossy"
    }
}

text_enum! {
    /// Faults that may happen.
    Fault {
        /// A process is stopped; its clock continues, and its messages wait.
        Pause "pause"
        /// A machine sleeps; its clock continues, and its messages are lost.
        Suspend "suspend"
        /// A process dies; another one replaces it much later.
        Kill "kill"
        /// A process dies; another one replaces it soon.
        Restart "restart"
        /// Requests and replies are lost.
        PartitionBoth "partition-both"
        /// Requests are lost.
        PartitionRequests "partition-requests"
        /// Replies are lost.
        PartitionReplies "partition-replies"
        /// Every second message is lost.
        PartitionFlapping "partition-flapping"
        /// Sometimes a reply is lost after the store has acted.
        ReplyLost "reply-lost"
        /// Sometimes a request arrives a second time later.
        Duplicate "duplicate"
        /// Some messages take long: they overtake each other, or arrive after their timeout.
        Reorder "reorder"
        /// The store restarts; the effect depends on its kind.
        StoreRestart "store-restart"
        /// The store is unreachable, possibly for longer than the TTL.
        StoreAway "store-away"
        /// The store ends a session early.
        EarlyRevoke "early-revoke"
        /// An operator adopts the store while members use it: it drops all sessions, and no handle
        /// is told.
        StoreAdopt "store-adopt"
        /// Local clocks run up to nine per cent too fast or too slow.
        ClockRate "clock-rate"
        /// Local clocks run slower than any margin allows.
        ClockBeyond "clock-beyond"
        /// A machine gets no hints for a while, and one hint when its watch is reconnected.
        Deaf "deaf"
        /// Many processes stop and start at once.
        Storm "storm"
        /// A process is asked to stop.
        Leave "leave"
        /// A process is asked to hand over.
        Drain "drain"
        /// An operator evicts an instance.
        Evict "evict"
        /// An operator edits the group document: pins, pauses, drains, cordons, weights.
        Operator "operator"
        /// Duties are added and removed.
        DutiesChange "duties-change"
        /// Duties are paused.
        DutiesPause "duties-pause"
        /// The list of duties cannot be read.
        ListFails "list-fails"
        /// Work takes time to stop when it is asked to.
        SlowWork "slow-work"
        /// Work continues for long after it was cancelled, and makes no progress.
        HangingWork "hanging-work"
        /// Work ends by itself.
        FailingWork "failing-work"
        /// Processes that start from now on have the other TTL, and some restart.
        TtlChange "ttl-change"
    }
}

/// Faults that are drawn apart.
const ADDED_LATER: [Fault; 2] = [Fault::TtlChange, Fault::StoreAdopt];

impl Fault {
    /// Whether it applies during the whole run, until faults end; the others are single events.
    pub fn is_ambient(self) -> bool {
        matches!(
            self,
            Self::ReplyLost
                | Self::Duplicate
                | Self::Reorder
                | Self::ClockRate
                | Self::ClockBeyond
                | Self::ListFails
                | Self::SlowWork
                | Self::HangingWork
                | Self::FailingWork
        )
    }

    fn fits(self, kind: Kind, layout: Layout) -> bool {
        match self {
            Self::EarlyRevoke => kind == Kind::Etcd,
            Self::StoreAdopt => kind == Kind::Durable,
            Self::DutiesChange | Self::DutiesPause | Self::ListFails => layout == Layout::Targets,
            _ => true,
        }
    }
}

/// The scenario of a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Kind of store.
    pub kind: Kind,
    /// The TTL of all members at first, and the longer one of two.
    pub ttl: Ttl,
    /// Whether all machines but the first have the other one of two TTLs.
    pub mixed: bool,
    /// Number of machines; each runs one process at a time.
    pub slots: usize,
    /// The weights of the machines.
    pub weights: Vec<u32>,
    /// The largest number of duties that each machine will hold.
    pub rooms: Vec<usize>,
    /// Whether machines have names and zones, and operators pin or pause duties.
    pub placed: bool,
    /// Whether processes run two revisions.
    pub revisions: bool,
    /// Clock rate of each machine, in millionths.
    pub rates: Vec<u64>,
    /// Naming scheme of the duties.
    pub layout: Layout,
    /// Number of duties at the start.
    pub duties: usize,
    /// Time for work to stop.
    pub drain: Duration,
    /// Time for which a duty stays after a move.
    pub window: Duration,
    /// The longest time between two looks.
    pub look_every: Duration,
    /// The longest time that work may run without progress.
    pub progress: Option<Duration>,
    /// Whether every confirmed hold is recorded.
    pub record_renewals: bool,
    /// Faults that may happen.
    pub faults: BTreeSet<Fault>,
    /// When faults end.
    pub quiet_from: Nanos,
    /// The usual maximum latency of a message.
    pub delay: Nanos,
}

impl Scenario {
    /// Draws the scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let kind = match rng.below(10) {
            0..4 => Kind::Durable,
            4..6 => Kind::Etcd,
            6..8 => Kind::RedisAof,
            _ => Kind::Lossy,
        };
        let ttl_ms = rng.between(10, 100) * 100;
        let ttl_ns = ttl_ms * 1_000_000;
        // From 1 to 10 seconds: always a valid TTL.
        let ttl = Ttl::new(Duration::from_millis(ttl_ms)).expect("a TTL inside the limits");
        let slots = rng.between(2, 6) as usize;
        let duties = rng.between(1, 12) as usize;
        let layout = match rng.below(6) {
            0 => Layout::Standby,
            1 | 2 => Layout::Shards(duties as u32),
            _ => Layout::Targets,
        };
        let duties = if layout == Layout::Standby { 1 } else { duties };
        let mut faults = swarm(&mut rng, kind, layout);
        // Drawn apart from the other faults, which a seed has had before these were added.
        if SimRng::new(seed ^ 0x771).chance(200) {
            faults.insert(Fault::TtlChange);
        }
        let mut apart = SimRng::new(seed ^ 0xad0);
        let adopts = Fault::StoreAdopt.fits(kind, layout) && apart.chance(250);
        faults.extend(adopts.then_some(Fault::StoreAdopt));
        let rates = (0..slots).map(|_| rate(&mut rng, &faults)).collect();
        let weighted = rng.chance(200);
        let weight = |rng: &mut SimRng| if weighted { rng.between(1, 3) as u32 } else { 1 };
        let quiet_from = rng.between(10, 20) * ttl_ns;
        let (tight, placed, revisions) = (rng.chance(200), rng.chance(250), rng.chance(150));
        let room = |rng: &mut SimRng| match tight {
            true => rng.between(1, duties as u64) as usize,
            false => MemberSettings::DEFAULT_ROOM,
        };
        let rooms = (0..slots).map(|_| room(&mut rng)).collect();
        let look_every = (ttl.get() / 3).min(Duration::from_secs(1));
        Self {
            seed,
            kind,
            ttl,
            mixed: adopts && apart.chance(500),
            slots,
            weights: (0..slots).map(|_| weight(&mut rng)).collect(),
            rooms,
            placed: placed || faults.contains(&Fault::Operator),
            revisions,
            rates,
            layout,
            duties,
            drain: ttl.get() / 2,
            window: ttl.get() * rng.between(1, 2) as u32,
            look_every,
            progress: rng.chance(300).then(|| ttl.get() * 2),
            record_renewals: rng.chance(300),
            faults,
            quiet_from,
            delay: rng.between(1, 10) * ttl_ns / 1000,
        }
    }

    /// Returns the other TTL, which is shorter.
    pub fn short_ttl(&self) -> Ttl {
        // Half a second or more: always a valid TTL.
        Ttl::new(self.ttl.get() / 2).expect("a TTL inside the limits")
    }

    /// Whether a failover may lose writes that the store had confirmed.
    pub fn is_lossy(&self) -> bool {
        self.kind == Kind::Lossy
    }

    /// Whether this fault may happen.
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// Returns the TTL in nanoseconds.
    pub fn ttl_ns(&self) -> Nanos {
        self.ttl.as_millis() * 1_000_000
    }

    /// Returns the longest virtual time that a local duration takes on the slowest clock.
    pub fn at_most(&self, local: Duration) -> Nanos {
        let slowest = self.rates.iter().min().copied().unwrap_or(1_000_000).max(1);
        (local.as_nanos() * 1_000_000 / u128::from(slowest)) as Nanos
    }

    /// Returns the time for which a mixture of revisions holds back moves.
    pub fn rollout(&self) -> Duration {
        self.ttl.get() * 2
    }

    /// Returns the name and the zone of a machine; there are two zones.
    pub fn place(slot: usize) -> (Label, Label) {
        // A letter and a number are always valid.
        let label = |text: String| Label::new(text).expect("a valid label");
        (label(format!("m{slot}")), label(format!("z{}", slot % 2)))
    }

    /// Draws a pin for a duty.
    pub fn pin(&self, rng: &mut SimRng) -> Pin {
        let (name, zone) = Self::place(rng.below(self.slots as u64) as usize);
        if rng.chance(500) { Pin::Name(name) } else { Pin::Zone(zone) }
    }

    /// Returns the duty with this number.
    pub fn duty(number: usize) -> DutyId {
        // A few digits are always a valid id.
        DutyId::new(number.to_string()).expect("a number is a name")
    }
}

/// Draws a random half of the possible faults: one fault can hide another that it always precedes.
fn swarm(rng: &mut SimRng, kind: Kind, layout: Layout) -> BTreeSet<Fault> {
    let per_mille = rng.between(100, 600);
    let mut faults: BTreeSet<Fault> = Fault::ALL
        .iter()
        .filter(|fault| !ADDED_LATER.contains(fault) && fault.fits(kind, layout))
        .filter(|_| rng.chance(per_mille))
        .copied()
        .collect();
    // Most seeds should judge beliefs, and seeds with this fault cannot.
    if !rng.chance(150) {
        faults.remove(&Fault::ClockBeyond);
    }
    faults
}

fn rate(rng: &mut SimRng, faults: &BTreeSet<Fault>) -> u64 {
    if faults.contains(&Fault::ClockBeyond) && rng.chance(500) {
        return rng.between(500_000, 850_000);
    }
    match faults.contains(&Fault::ClockRate) {
        true => rng.between(910_000, 1_090_000),
        false => 1_000_000,
    }
}
