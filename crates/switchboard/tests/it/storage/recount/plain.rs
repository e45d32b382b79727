//! The plain recount.

use std::collections::{BTreeMap, BTreeSet};

use tenure_switchboard::storage::{Beat, Measures, Name, Step};
use tenure_wire::heartbeat::{Counters, Health};
use uuid::Uuid;

use super::super::told::{DAY, HOUR, MINUTE, named};

/// A beat that arrived.
pub(super) struct Heard {
    pub(super) beat: Beat,
    pub(super) at: i64,
    pub(super) written: bool,
}

pub(super) fn list(counters: &Counters) -> [i64; 5] {
    [
        counters.messages_ingested,
        counters.messages_failed,
        counters.source_api_calls,
        counters.checkpoint_saves,
        counters.dedupe_accepted,
    ]
}

/// What a beat is worth.
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) at: i64,
    pub(super) state: Health,
    pub(super) late: bool,
    pub(super) written: bool,
    /// What the counters grew by.
    pub(super) grown: [i64; 5],
    /// The same, with what could not be told before.
    pub(super) told: [i64; 5],
}

#[derive(Clone, Copy, Default)]
pub(super) struct Worth {
    newest: Option<(i64, i64)>,
    pub(super) counters: [i64; 5],
    pub(super) owed: [i64; 5],
    /// Beats, late ones and resets.
    pub(super) counts: [i64; 3],
}

/// All that was heard before a time, from the first beat on.
pub(super) struct Recount {
    pub(super) entries: Vec<Entry>,
    pub(super) before: i64,
    pub(super) instances: BTreeMap<(Name, Uuid), Worth>,
    /// Whether the last beat was late, and whether it was a reset.
    pub(super) last: (bool, bool),
}

impl Recount {
    pub(super) fn of(heard: &[Heard], before: i64) -> Self {
        let mut recount =
            Self { entries: Vec::new(), before, instances: BTreeMap::new(), last: (false, false) };
        for Heard { beat, at, written } in heard {
            let told = &beat.heartbeat;
            let name = named(&told.connector_type, &told.endpoint_identity);
            let of = recount.instances.entry((name.clone(), told.instance_id)).or_default();
            let sent = told.sent_at_micros.min(at + 5 * MINUTE);
            let late =
                of.newest.is_some_and(|(uptime, before)| told.uptime_s <= uptime && sent <= before);
            let mut entry = Entry {
                name,
                at: *at,
                state: told.state,
                late,
                written: *written,
                grown: [0; 5],
                told: [0; 5],
            };
            let mut reset = false;
            if !late {
                for (number, now) in list(&told.counters).into_iter().enumerate() {
                    let went_down = now < of.counters[number];
                    reset |= went_down;
                    let from = if went_down { 0 } else { of.counters[number] };
                    entry.grown[number] = now - from;
                    entry.told[number] = now - from + of.owed[number];
                }
                of.owed = if *written { [0; 5] } else { entry.told };
                of.counters = list(&told.counters);
                of.newest = Some((told.uptime_s, sent));
            }
            of.counts[0] += 1;
            of.counts[1] += i64::from(late);
            of.counts[2] += i64::from(reset);
            recount.last = (late, reset);
            recount.entries.push(entry);
        }
        recount
    }

    pub(super) fn names(&self) -> BTreeSet<Name> {
        self.entries.iter().map(|it| it.name.clone()).collect()
    }

    /// What counts of a connector since a time.
    pub(super) fn counted(&self, name: &Name, since: i64) -> impl Iterator<Item = &Entry> {
        let is_in = move |at: i64| at >= since && at < self.before;
        self.entries.iter().filter(move |it| it.name == *name && it.written && is_in(it.at))
    }

    pub(super) fn series(&self, name: &Name, step: Step, since: i64) -> Vec<(i64, Measures)> {
        let length = match step {
            Step::Hour => HOUR,
            Step::Day => DAY,
        };
        let mut series: BTreeMap<i64, Measures> = BTreeMap::new();
        for it in self.counted(name, since) {
            let sum = series.entry(it.at / length * length).or_default();
            let [ingested, failed, calls, _, dedupe] = it.told;
            sum.messages_ingested += ingested;
            sum.messages_failed += failed;
            sum.source_api_calls += calls;
            sum.dedupe_accepted += dedupe;
            sum.heartbeat_count += 1;
            match it.state {
                Health::Healthy => sum.healthy_count += 1,
                Health::Degraded => sum.degraded_count += 1,
                Health::Error => sum.error_count += 1,
            }
        }
        series.into_iter().collect()
    }

    pub(super) fn sum(&self, name: &Name, since: i64) -> (i64, i64) {
        let told = self.counted(name, since).map(|it| (it.told[0], it.told[1]));
        told.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    }
}
