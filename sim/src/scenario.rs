//! Scenario: everything that a seed decides before the run begins.

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
            /// Every one there is.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word in traces and tables.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

text_enum! {
    /// Whose semantics the store has.
    Kind {
        /// PostgreSQL, SQLite: linearizable, and nothing is ever forgotten.
        Durable "durable"
        /// Sessions live longer after a change of the leader, and may be revoked early.
        Etcd "etcd"
        /// After a restart every session is gone and every handle is told so once.
        RedisAof "redis-aof"
        /// A failover forgets the last writes.
        Lossy "lossy"
    }
}

text_enum! {
    /// Faults that may happen.
    Fault {
        /// A process stands still; its clock goes on, what was sent to it waits.
        Pause "pause"
        /// A machine sleeps; its clock goes on, what was sent to it is lost.
        Suspend "suspend"
        /// A process dies and comes back as another one much later.
        Kill "kill"
        /// A process dies and comes back as another one soon.
        Restart "restart"
        /// Nothing passes between a process and the store.
        PartitionBoth "partition-both"
        /// Requests are lost.
        PartitionRequests "partition-requests"
        /// Replies are lost.
        PartitionReplies "partition-replies"
        /// Every other message is lost.
        PartitionFlapping "partition-flapping"
        /// Now and then a reply is lost after the store has acted.
        ReplyLost "reply-lost"
        /// Now and then a request arrives again later.
        Duplicate "duplicate"
        /// Some messages take long: they overtake each other, and come after their time.
        Reorder "reorder"
        /// The store restarts; what that means depends on its kind.
        StoreRestart "store-restart"
        /// The store cannot be reached, also for longer than the TTL.
        StoreAway "store-away"
        /// The store ends a session early.
        EarlyRevoke "early-revoke"
        /// Local clocks run up to nine per cent fast or slow.
        ClockRate "clock-rate"
        /// Local clocks run slower than any margin allows.
        ClockBeyond "clock-beyond"
        /// A machine gets no hints for a while, and one when its watch is connected again.
        Deaf "deaf"
        /// Many processes come and go at once.
        Storm "storm"
        /// A process is asked to stop.
        Leave "leave"
        /// A process is asked to hand over.
        Drain "drain"
        /// An operator puts an instance out.
        Evict "evict"
        /// Somebody writes into the document of the group: pins, pauses, drains, cordons, weights.
        Operator "operator"
        /// Duties appear and vanish.
        DutiesChange "duties-change"
        /// Duties are paused.
        DutiesPause "duties-pause"
        /// The list of duties cannot be read.
        ListFails "list-fails"
        /// Work takes its time to stop when it is asked to.
        SlowWork "slow-work"
        /// Work goes on for long after it was cancelled, and makes no progress.
        HangingWork "hanging-work"
        /// Work ends by itself.
        FailingWork "failing-work"
    }
}

impl Fault {
    /// It shades everything while faults last; the others are single blows.
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
    /// Whose semantics the store has.
    pub kind: Kind,
    /// The TTL of all members.
    pub ttl: Ttl,
    /// Number of machines; each runs one process at a time.
    pub slots: usize,
    /// The weights of the machines.
    pub weights: Vec<u32>,
    /// The most duties that each machine will hold.
    pub rooms: Vec<usize>,
    /// Whether machines have names and zones, and duties are pinned to them or paused.
    pub placed: bool,
    /// Whether processes are of two revisions.
    pub revisions: bool,
    /// Clock rate of each machine, in millionths.
    pub rates: Vec<u64>,
    /// Naming scheme of the duties.
    pub layout: Layout,
    /// Number of duties at the start.
    pub duties: usize,
    /// Time for work to stop.
    pub drain: Duration,
    /// Time for which a duty that was moved stays.
    pub window: Duration,
    /// The longest time between two looks.
    pub look_every: Duration,
    /// Longest time that work may go on without progress.
    pub progress: Option<Duration>,
    /// Whether every confirmed hold is recorded.
    pub record_renewals: bool,
    /// Faults that may happen.
    pub faults: BTreeSet<Fault>,
    /// When faults end.
    pub quiet_from: Nanos,
    /// The usual time of a message, at most.
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
        // Between 1 and 10 seconds: always a valid TTL.
        let ttl = Ttl::new(Duration::from_millis(ttl_ms)).expect("a TTL inside the limits");
        let slots = rng.between(2, 6) as usize;
        let duties = rng.between(1, 12) as usize;
        let layout = match rng.below(6) {
            0 => Layout::Standby,
            1 | 2 => Layout::Shards(duties as u32),
            _ => Layout::Targets,
        };
        let duties = if layout == Layout::Standby { 1 } else { duties };
        let faults = swarm(&mut rng, kind, layout);
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

    /// Whether a failover may forget what the store had confirmed.
    pub fn is_lossy(&self) -> bool {
        self.kind == Kind::Lossy
    }

    /// Whether this may go wrong.
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// The TTL in nanoseconds.
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

    /// The name of a machine and its zone: there are two.
    pub fn place(slot: usize) -> (Label, Label) {
        // A letter and a number: always valid.
        let label = |text: String| Label::new(text).expect("a valid label");
        (label(format!("m{slot}")), label(format!("z{}", slot % 2)))
    }

    /// A place for a duty.
    pub fn pin(&self, rng: &mut SimRng) -> Pin {
        let (name, zone) = Self::place(rng.below(self.slots as u64) as usize);
        if rng.chance(500) { Pin::Name(name) } else { Pin::Zone(zone) }
    }

    /// The duty with this number.
    pub fn duty(number: usize) -> DutyId {
        // A few digits: always a valid id.
        DutyId::new(number.to_string()).expect("a number is a name")
    }
}

/// A random half of the menu: a fault hides others that it always comes before.
fn swarm(rng: &mut SimRng, kind: Kind, layout: Layout) -> BTreeSet<Fault> {
    let per_mille = rng.between(100, 600);
    let mut faults: BTreeSet<Fault> = Fault::ALL
        .iter()
        .filter(|fault| fault.fits(kind, layout))
        .filter(|_| rng.chance(per_mille))
        .copied()
        .collect();
    // Most seeds judge beliefs, and these cannot.
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
