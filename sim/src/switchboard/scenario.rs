//! Scenario of a seed: everything that is decided before the run begins.

use std::collections::BTreeSet;

use tenure_switchboard::storage::{HistoryRetention, InboxRetention};

use super::{DAY, HOUR, MINUTE, Micros, SECOND};
use crate::rng::SimRng;
use crate::scenario::text_enum;

text_enum! {
    /// Faults of the switchboard that may happen.
    SwitchFault {
        /// A request never reaches the store.
        RequestLost "request-lost"
        /// The store has acted and its answer is lost.
        AnswerLost "answer-lost"
        /// A group that its clients gave up is committed later.
        LateCommit "late-commit"
        /// A replica dies with the submissions that wait in it, and comes back.
        ReplicaKill "replica-kill"
        /// A holder continues under its epoch after it was replaced.
        Zombie "zombie"
        /// Another instance submits under the same epoch.
        SameEpoch "same-epoch"
        /// The store refuses the content of an event.
        RefusedContent "refused-content"
        /// The store's clock is set forward, by seconds or up to 400 days.
        ClockForward "clock-forward"
        /// The store's clock is set back, by seconds or to 1970.
        ClockBack "clock-back"
        /// The machine sleeps for hours; all clocks go on.
        Sleep "sleep"
        /// An operator revokes a token.
        TokenRevoke "token-revoke"
        /// Tokens live for minutes.
        TokenShort "token-short"
        /// An operator forgets the fences of a duty.
        FenceReset "fence-reset"
        /// The database is replaced by an earlier copy.
        Restore "restore"
        /// The operator adopts a restored inbox late.
        LateAdopt "late-adopt"
        /// A reader is away for long.
        ReaderAway "reader-away"
        /// A tick of the clock of retention takes long.
        SlowTick "slow-tick"
        /// A heartbeat is sent again.
        BeatRepeat "beat-repeat"
        /// A heartbeat arrives after the next one.
        BeatLate "beat-late"
        /// A connector restarts, sometimes as the same instance.
        ConnectorRestart "connector-restart"
        /// A connector is silent for long.
        ConnectorAway "connector-away"
        /// An earlier holder of the statistics goes on counting.
        OldCounter "old-counter"
        /// An operator recounts, archives or deletes a connector.
        Registry "registry"
    }
}

/// The scenario of a seed.
#[derive(Clone, Debug)]
pub struct SwitchScenario {
    /// The seed.
    pub seed: u64,
    /// Number of replicas.
    pub replicas: usize,
    /// Number of sources, each an endpoint.
    pub sources: usize,
    /// Number of duties; each may be held for any source.
    pub duties: usize,
    /// Number of readers.
    pub readers: usize,
    /// Number of connectors.
    pub connectors: usize,
    /// Whether some readers keep bare positions. Those cannot notice a late adoption.
    pub bare: bool,
    /// Events in a commit group.
    pub group_items: usize,
    /// Average time between two submissions of a producer.
    pub gap: Micros,
    /// Interval at which a replica moves the clock of retention.
    pub tick: Micros,
    /// Retention of the inbox.
    pub keep: InboxRetention,
    /// Retention of the history.
    pub history: HistoryRetention,
    /// Faults that may happen.
    pub faults: BTreeSet<SwitchFault>,
    /// Average time between two faults.
    pub fault_gap: Micros,
    /// End of the faults.
    pub heal: Micros,
}

impl SwitchScenario {
    /// Draws the scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut rng = SimRng::new(seed ^ 0x5717_c4b0_a4d0_0001);
        let per_mille = rng.between(150, 700);
        let mut faults: BTreeSet<SwitchFault> =
            SwitchFault::ALL.iter().filter(|_| rng.chance(per_mille)).copied().collect();
        if !faults.contains(&SwitchFault::Restore) {
            faults.remove(&SwitchFault::LateAdopt);
        }
        let heal = rng.between(20, 60) as Micros * MINUTE;
        let bodies = rng.between(5, 25) as Micros * MINUTE;
        let keys = bodies + rng.below(30) as Micros * MINUTE;
        let wide = rng.chance(200);
        Self {
            seed,
            replicas: rng.between(1, 3) as usize,
            sources: rng.between(1, 3) as usize,
            duties: rng.between(1, 2) as usize,
            readers: rng.between(1, 3) as usize,
            connectors: rng.between(1, 3) as usize,
            bare: !faults.contains(&SwitchFault::LateAdopt),
            group_items: if wide { 3 } else { 1_000 },
            gap: heal / rng.between(10, 30) as Micros,
            tick: rng.between(60, 300) as Micros * SECOND,
            keep: InboxRetention { bodies, keys },
            history: HistoryRetention { beats: DAY, ..HistoryRetention::default() },
            fault_gap: heal / rng.between(4, 24) as Micros,
            faults,
            heal,
        }
    }

    /// Whether this fault may happen.
    pub fn has(&self, fault: SwitchFault) -> bool {
        self.faults.contains(&fault)
    }

    /// Draws the size of a step of the clock.
    pub fn step(rng: &mut SimRng) -> Micros {
        match rng.below(4) {
            0 => rng.between(1, 120) as Micros * SECOND,
            1 => rng.between(2, 90) as Micros * MINUTE,
            2 => rng.between(1, 60) as Micros * HOUR,
            _ => rng.between(2, 400) as Micros * DAY,
        }
    }
}
