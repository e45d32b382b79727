//! Plain recount in memory.

use std::collections::{BTreeMap, BTreeSet};

use tenure_switchboard::storage::{ConnectorKey, Measures, ReceivedHeartbeat, SeriesStep};
use tenure_wire::heartbeat::{Counters, Health, Heartbeat};
use uuid::Uuid;

use super::super::told::{DAY, HOUR, MINUTE, SECOND, named};

/// A received heartbeat.
pub(super) struct Heard {
    pub(super) beat: ReceivedHeartbeat,
    pub(super) at: i64,
    pub(super) written: bool,
    pub(super) late: bool,
    pub(super) counted: bool,
}

impl Heard {
    pub(super) fn name(&self) -> ConnectorKey {
        named(&self.beat.heartbeat.connector_type, &self.beat.heartbeat.endpoint_identity)
    }
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

/// Effect of a heartbeat.
pub(super) struct Entry {
    pub(super) name: ConnectorKey,
    pub(super) at: i64,
    pub(super) state: Health,
    pub(super) late: bool,
    pub(super) written: bool,
    pub(super) counted: bool,
    /// Growth of the counters.
    pub(super) grown: [i64; 5],
    /// Growth plus owed deltas.
    pub(super) told: [i64; 5],
}

#[derive(Clone, Copy, Default)]
pub(super) struct Worth {
    newest: Option<(i64, i64)>,
    /// Send time as sent.
    sent: i64,
    pub(super) counters: [i64; 5],
    pub(super) owed: [i64; 5],
    /// Beats, late ones and resets.
    pub(super) counts: [i64; 3],
    pub(super) started: i64,
    pub(super) heard: i64,
    pub(super) interval: Option<i64>,
    pub(super) stopped: bool,
}

impl Worth {
    /// Applies a heartbeat that is not late, except its counters.
    fn hear(&mut self, told: &Heartbeat, at: i64) {
        let started = (at - told.uptime_s * SECOND).max(0);
        let gap = at - self.heard;
        self.started = match self.newest {
            Some((uptime, _)) if told.uptime_s >= uptime => started.min(self.started),
            _ => started,
        };
        if self.newest.is_some() && gap >= SECOND {
            let first = gap.min(HOUR);
            self.interval = Some(self.interval.map_or(first, |it| (4 * it + gap.min(2 * it)) / 5));
        }
        self.heard = at;
        self.stopped =
            told.state == Health::Degraded && told.error_message.as_deref() == Some("stopping");
    }

    /// Returns whether another instance that started then replaces it.
    fn gives_way(&self, started: i64, at: i64) -> bool {
        let silent = (15 * MINUTE).max(5 * self.interval.unwrap_or(0).min(5 * MINUTE));
        started > self.started || self.stopped || at - self.heard >= silent
    }
}

/// Instance that represents a connector, and its last report.
#[derive(Clone)]
pub(super) struct Stands {
    pub(super) id: Uuid,
    pub(super) state: Health,
    pub(super) uptime_s: i64,
}

/// Outcome of the last heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) late: bool,
    pub(super) reset: bool,
    pub(super) registered: bool,
    pub(super) replaced: Option<Uuid>,
}

/// All received heartbeats and the resulting state.
pub(super) struct Recount {
    pub(super) entries: Vec<Entry>,
    pub(super) instances: BTreeMap<(ConnectorKey, Uuid), Worth>,
    pub(super) standing: BTreeMap<ConnectorKey, Stands>,
    pub(super) last: Last,
}

impl Recount {
    pub(super) fn of(heard: &[Heard]) -> Self {
        let mut recount = Self {
            entries: Vec::new(),
            instances: BTreeMap::new(),
            standing: BTreeMap::new(),
            last: Last::default(),
        };
        for Heard { beat, at, written, counted, .. } in heard {
            let told = &beat.heartbeat;
            let name = named(&told.connector_type, &told.endpoint_identity);
            let of = recount.instances.entry((name.clone(), told.instance_id)).or_default();
            let sent = told.sent_at_micros.min(at + 5 * MINUTE);
            let is_ahead = told.sent_at_micros > sent;
            let late = of.newest.is_some_and(|(uptime, before)| {
                let is_older = is_ahead && told.sent_at_micros <= of.sent;
                told.uptime_s <= uptime && (sent <= before || is_older)
            });
            let mut entry = Entry {
                name,
                at: *at,
                state: told.state,
                late,
                written: *written,
                counted: *counted,
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
                of.hear(told, *at);
                of.owed = if *written { [0; 5] } else { entry.told };
                of.counters = list(&told.counters);
                of.newest = Some((told.uptime_s, sent));
                of.sent = told.sent_at_micros;
            }
            of.counts[0] += 1;
            of.counts[1] += i64::from(late);
            of.counts[2] += i64::from(reset);
            let of = *of;
            recount.last = Last { late, reset, ..Last::default() };
            if !late {
                recount.stands(&entry.name, told, of.started, *at);
            }
            recount.entries.push(entry);
        }
        recount
    }

    /// Makes the instance the representative, if it replaces the current one.
    fn stands(&mut self, name: &ConnectorKey, told: &Heartbeat, started: i64, at: i64) {
        let before = self.standing.get(name).map(|it| it.id);
        self.last.registered = before.is_none();
        if let Some(other) = before.filter(|id| *id != told.instance_id) {
            if !self.instances[&(name.clone(), other)].gives_way(started, at) {
                return;
            }
            self.last.replaced = Some(other);
        }
        let Heartbeat { instance_id: id, state, uptime_s, .. } = *told;
        self.standing.insert(name.clone(), Stands { id, state, uptime_s });
    }

    pub(super) fn names(&self) -> BTreeSet<ConnectorKey> {
        self.entries.iter().map(|it| it.name.clone()).collect()
    }

    /// Returns the counted entries of a connector since a time.
    pub(super) fn counted(&self, name: &ConnectorKey, since: i64) -> impl Iterator<Item = &Entry> {
        let counts = move |it: &&Entry| it.counted && !it.late && it.at >= since;
        self.entries.iter().filter(move |it| it.name == *name && counts(it))
    }

    pub(super) fn series(
        &self,
        name: &ConnectorKey,
        step: SeriesStep,
        since: i64,
    ) -> Vec<(i64, Measures)> {
        let length = match step {
            SeriesStep::Hour => HOUR,
            SeriesStep::Day => DAY,
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

    pub(super) fn sum(&self, name: &ConnectorKey, since: i64) -> (i64, i64) {
        let told = self.counted(name, since).map(|it| (it.told[0], it.told[1]));
        told.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    }
}
