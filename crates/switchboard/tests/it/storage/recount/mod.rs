//! Random histories of several days: the store's numbers are compared with a plain recount.

mod event;
mod plain;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::test_runner::{Config, TestRunner};
use tenure_switchboard::storage::{
    AcceptedHeartbeat, ConnectorKey, HistoryRetention, MessageOutcomes, Period, ReceivedHeartbeat,
    STOPPING, SeriesStep, Storage, TimeSource,
};
use tenure_wire::heartbeat::{Counters, Health};
use tokio::runtime::Handle;
use uuid::Uuid;

use event::{Event, Fate, Hold, histories};
use plain::{Heard, Last, Recount, list};

use super::kit::{by_me, commit_one, named as submitted, stored};
use super::told::{
    DAY, HOUR, MIDNIGHT, SECOND, beat, epoch, history, named, of, saying, shown, take,
};
use crate::place::Place;

const CONNECTORS: usize = 3;
const PROCESSES: usize = 6;
const MESSAGES: usize = 3;
const TARGETS: [&str; 3] = ["health", "general", "Zoo"];

#[derive(Clone)]
struct Process {
    id: u128,
    started: i64,
    counters: [i64; 5],
    ahead: i64,
}

/// State of the test.
struct World<'a> {
    place: &'a Place,
    now: i64,
    /// Time of the last count.
    counted_at: i64,
    epoch: u64,
    ids: u128,
    processes: Vec<Process>,
    under_way: Vec<ReceivedHeartbeat>,
    heard: Vec<Heard>,
    messages: Vec<Uuid>,
    /// Acknowledgements by message and target, and whether each was counted; `None` if its
    /// connector was deleted before.
    acked: BTreeMap<(usize, usize), Option<bool>>,
    archived: BTreeSet<ConnectorKey>,
    tidies: bool,
    /// Clocks and counters only increase, and no process restarts with its id. Some clocks are off.
    goes_on: bool,
}

fn name_of(who: usize) -> ConnectorKey {
    named(["telegram_bot", "gmail", "api"][who % CONNECTORS], "bot")
}

fn heartbeat(who: usize, process: &Process, state: usize, now: i64) -> ReceivedHeartbeat {
    let uptime = ((now - process.started) / SECOND).max(0);
    let mut told = beat(process.id, now + process.ahead * SECOND, uptime, 0);
    let [ingested, failed, calls, saves, dedupe] = process.counters;
    told.heartbeat.counters = Counters {
        messages_ingested: ingested,
        messages_failed: failed,
        source_api_calls: calls,
        checkpoint_saves: saves,
        dedupe_accepted: dedupe,
    };
    let (state, message) = match state {
        0..=2 => (Health::Healthy, None),
        3 => (Health::Degraded, None),
        4 => (Health::Degraded, Some(STOPPING)),
        _ => (Health::Error, Some("no")),
    };
    of(&name_of(who), saying(state, message, told))
}

impl World<'_> {
    fn storage(&self) -> &Arc<dyn Storage> {
        &self.place.storage
    }

    async fn happens(&mut self, event: &Event) {
        match event {
            Event::Reset { .. } | Event::Clock { .. } if self.goes_on => {}
            Event::Pass(seconds) if self.goes_on => self.now += seconds.abs() * SECOND,
            Event::Pass(seconds) => self.now += seconds * SECOND,
            Event::Beat { who, done, state, fate } => {
                // Heartbeats with the same send time would be the same one.
                self.now += i64::from(self.goes_on);
                let process = &mut self.processes[*who];
                for (counter, by) in process.counters.iter_mut().zip([1, 0, 3, 1, 2]) {
                    *counter += done * by + i64::from(by == 0) * (done % 3);
                }
                let beat = heartbeat(*who, process, *state, self.now);
                self.sends(beat, *fate).await;
            }
            Event::Arrive(which) => {
                if !self.under_way.is_empty() {
                    // Send times ahead are capped by the time of arrival, which must be unique.
                    self.now += i64::from(self.goes_on);
                    let beat = self.under_way.remove(which % self.under_way.len());
                    self.arrives(beat, true).await;
                }
            }
            Event::Restart { who, same_id } => {
                self.ids += 1;
                let process = &mut self.processes[*who];
                let id = if *same_id && !self.goes_on { process.id } else { self.ids };
                let ahead = process.ahead;
                *process = Process { id, started: self.now, counters: [0; 5], ahead };
            }
            Event::Reset { who, counter } => self.processes[*who].counters[*counter] /= 2,
            Event::Clock { who, ahead } => self.processes[*who].ahead = *ahead,
            Event::Count { hold } => self.counts(*hold).await,
            Event::Report { message, target, acked } => {
                self.reports(*message, *target, *acked).await;
            }
            Event::Tidy => {
                // Deletes only data that later checks do not need.
                let ages = 4_000 * DAY;
                let (hours, days) = (8 * DAY, 31 * DAY);
                let keep = HistoryRetention { beats: 0, hours, days, outcomes: ages };
                if self.tidies {
                    self.storage().prune_history(keep, TimeSource::At(self.now)).await.unwrap();
                }
            }
            Event::Archive { who, archived } => self.archives(name_of(*who), *archived).await,
            Event::Delete { who } => self.deletes(name_of(*who)).await,
        }
    }

    /// Returns the work of a connector's instances as received: the maximum of each counter of each
    /// instance. This does not depend on which heartbeats are late.
    fn done(&self, name: &ConnectorKey) -> [i64; 5] {
        let mut most: BTreeMap<Uuid, [i64; 5]> = BTreeMap::new();
        for it in self.heard.iter().filter(|it| it.name() == *name) {
            let of = most.entry(it.beat.heartbeat.instance_id).or_default();
            let told = list(&it.beat.heartbeat.counters);
            of.iter_mut().zip(told).for_each(|(most, told)| *most = told.max(*most));
        }
        let mut done = [0; 5];
        most.values().for_each(|of| done.iter_mut().zip(of).for_each(|(sum, it)| *sum += it));
        done
    }

    fn is_heard(&self, name: &ConnectorKey) -> bool {
        self.heard.iter().any(|it| it.name() == *name)
    }

    async fn archives(&mut self, name: ConnectorKey, archived: bool) {
        let changes = self.is_heard(&name).then_some(self.archived.contains(&name) != archived);
        let changed = self.storage().archive(&name, archived, &by_me("so")).await.unwrap().unwrap();
        assert_eq!(changed, changes);
        match (changes, archived) {
            (Some(true), true) => self.archived.insert(name),
            (Some(true), false) => self.archived.remove(&name),
            _ => false,
        };
    }

    async fn deletes(&mut self, name: ConnectorKey) {
        let deleted = self.storage().delete(&name, &by_me("so")).await.unwrap().unwrap();
        assert_eq!(deleted, self.is_heard(&name));
        if deleted {
            self.archived.remove(&name);
            self.heard.retain(|it| it.name() != name);
            let of = self.acked.iter_mut().filter(|it| name_of(it.0.0) == name);
            of.for_each(|it| *it.1 = None);
        }
    }

    async fn sends(&mut self, beat: ReceivedHeartbeat, fate: Fate) {
        match fate {
            Fate::Arrives => self.arrives(beat, true).await,
            Fate::ArrivesTwice => {
                self.arrives(beat.clone(), true).await;
                self.arrives(beat, true).await;
            }
            Fate::IsLost => {}
            Fate::IsUnderWay => self.under_way.push(beat),
            Fate::IsUnwritten => {
                self.place.break_history().await;
                self.arrives(beat, false).await;
                self.place.mend_history().await;
            }
        }
    }

    async fn arrives(&mut self, beat: ReceivedHeartbeat, written: bool) {
        let taken = take(self.storage(), &beat, self.now).await;
        let at = self.now;
        assert_eq!(taken.received_at, at);
        assert_eq!(taken.drift, at - beat.heartbeat.sent_at_micros);
        assert_eq!(taken.unwritten.is_none(), written);
        let heard = Heard { beat, at, written, late: taken.late, counted: false };
        let revived = !taken.late && self.archived.remove(&heard.name());
        assert_eq!(taken.revived, revived);
        self.heard.push(heard);
        let AcceptedHeartbeat { late, reset, registered, replaced, .. } = taken;
        let recount = Recount::of(&self.heard);
        assert_eq!(Last { late, reset, registered, replaced }, recount.last);
    }

    async fn counts(&mut self, hold: Hold) {
        let number = match hold {
            Hold::Same => self.epoch,
            Hold::Newer => self.epoch + 1,
            Hold::Older => self.epoch - 1,
        };
        let is_older = matches!(hold, Hold::Older);
        let step = self.storage().roll_up(epoch(number), TimeSource::At(self.now)).await.unwrap();
        assert_eq!((step.fenced, step.more), (is_older, false));
        let mut counted = (0, 0);
        if !is_older {
            (self.epoch, self.counted_at) = (number, self.now);
            for it in self.heard.iter_mut().filter(|it| it.written && !it.counted) {
                it.counted = true;
                counted.0 += i64::from(!it.late);
            }
            for it in self.acked.values_mut().filter(|it| **it == Some(false)) {
                *it = Some(true);
                counted.1 += 1;
            }
        }
        assert_eq!((step.beats, step.outcomes), counted);
        self.is_right().await;
    }

    async fn reports(&mut self, message: usize, target: usize, acked: bool) {
        let name = name_of(message);
        let targets = vec![TARGETS[target].to_owned()];
        let none = Vec::new;
        let (acks, fails) = if acked { (targets, none()) } else { (none(), targets) };
        let outcomes = MessageOutcomes {
            request_id: self.messages[message],
            connector_type: name.connector_type,
            endpoint_identity: name.endpoint_identity,
            acked: acks,
            failed: fails,
            token_id: None,
        };
        self.storage().report(&outcomes, TimeSource::At(self.now)).await.unwrap().unwrap();
        if acked {
            self.acked.entry((message, target)).or_insert(Some(false));
        }
    }

    /// Checks that all counts equal a recount.
    async fn is_right(&self) {
        let recount = Recount::of(&self.heard);
        let now = self.counted_at;
        let kept = |step: SeriesStep| match (self.tidies, step) {
            (false, _) => 0,
            (true, SeriesStep::Hour) => Period::Week.since(now),
            (true, SeriesStep::Day) => Period::Month.since(now),
        };
        for connector in 0..CONNECTORS {
            let name = name_of(connector);
            for step in [SeriesStep::Hour, SeriesStep::Day] {
                let since = kept(step);
                let found = self.storage().series(&name, since, step).await.unwrap();
                let found: Vec<_> = found.iter().map(|it| (it.start, it.measures)).collect();
                let expected = recount.series(&name, step, since);
                assert_eq!(found, expected, "{name:?} {step:?} at {now}");
            }
        }
        for period in Period::ALL {
            let (_, found) = self.storage().sums(period).await.unwrap();
            let known: BTreeSet<ConnectorKey> = self.heard.iter().map(Heard::name).collect();
            assert_eq!(found.len(), known.difference(&self.archived).count());
            for it in found {
                let name = named(&it.connector_type, &it.endpoint_identity);
                let expected = recount.sum(&name, period.since(now));
                let found = (it.messages_ingested, it.messages_failed);
                assert_eq!(found, expected, "{name:?} {period:?} at {now}");
            }
        }
        let mut fanout: BTreeMap<(String, String), i64> = BTreeMap::new();
        for ((message, target), _) in self.acked.iter().filter(|it| *it.1 == Some(true)) {
            let key = (name_of(*message).connector_type, TARGETS[*target].to_owned());
            *fanout.entry(key).or_default() += 1;
        }
        if !self.tidies {
            let found = self.storage().fanout("2000-01-01").await.unwrap();
            let found: Vec<_> =
                found.into_iter().map(|it| ((it.connector_type, it.target), it.messages)).collect();
            assert_eq!(found, fanout.into_iter().collect::<Vec<_>>());
        }
    }

    /// Checks that the registry and the history equal a recount.
    async fn is_known(&self) {
        let recount = Recount::of(&self.heard);
        let names: BTreeSet<ConnectorKey> = recount.names();
        for name in names {
            let known = shown(self.storage(), &name).await;
            let mut total = [0; 5];
            for it in recount.entries.iter().filter(|it| it.name == name) {
                total.iter_mut().zip(it.grown).for_each(|(sum, by)| *sum += by);
            }
            assert_eq!(list(&known.connector.counters), total, "{name:?}");
            if self.goes_on {
                assert_eq!(total, self.done(&name), "{name:?}");
            }
            let newest = recount.entries.iter().rfind(|it| it.name == name && !it.late);
            assert_eq!(known.connector.last_heartbeat_at, newest.map(|it| it.at));
            let stands = &recount.standing[&name];
            assert_eq!(known.connector.instance_id, Some(stands.id));
            assert_eq!(known.connector.state, stands.state.as_str());
            assert_eq!(known.connector.uptime_s, Some(stands.uptime_s));
            assert_eq!(known.connector.archived_at.is_some(), self.archived.contains(&name));
            for it in &known.instances {
                let of = recount.instances[&(name.clone(), it.instance_id)];
                assert_eq!([it.beats, it.late, it.resets], of.counts);
                assert_eq!(list(&it.counters), of.counters);
                assert_eq!((it.started_at, it.last_heartbeat_at), (of.started, of.heard));
                assert_eq!((it.interval, it.stopped_at.is_some()), (of.interval, of.stopped));
            }
            if !self.tidies {
                let found = history(self.storage(), &name).await;
                let found = found.iter().map(|it| ((it.received_at, it.late), list(&it.deltas)));
                let told = recount.entries.iter().filter(|it| it.name == name && it.written);
                let mut told: Vec<_> = told.map(|it| ((it.at, it.late), it.told)).collect();
                // By time of arrival, then in the order of arrival.
                told.sort_by_key(|it| it.0.0);
                assert_eq!(found.collect::<Vec<_>>(), told, "{name:?}");
            }
        }
    }
}

async fn play(place: &Place, events: &[Event], tidies: bool, goes_on: bool) {
    place.empty().await;
    let mut messages = Vec::new();
    for number in 0..MESSAGES {
        let settled = commit_one(&place.storage, submitted(&[&number.to_string()])).await;
        messages.push(stored(&settled)[0].request_id);
    }
    let start = MIDNIGHT + 22 * HOUR;
    let ahead = |id: u128| [0, 0, -7_200, 290, 400 * 86_400, 0][id as usize % PROCESSES];
    let process =
        |id| Process { id, started: start - 7 * SECOND, counters: [0; 5], ahead: ahead(id) };
    let mut world = World {
        place,
        now: start,
        counted_at: start,
        epoch: 3,
        ids: PROCESSES as u128,
        processes: (0..PROCESSES as u128).map(process).collect(),
        under_way: Vec::new(),
        heard: Vec::new(),
        messages,
        acked: BTreeMap::new(),
        archived: BTreeSet::new(),
        tidies,
        goes_on,
    };
    // The first hold.
    world.counts(Hold::Same).await;
    for event in events {
        world.happens(event).await;
    }
    while !world.under_way.is_empty() {
        world.happens(&Event::Arrive(0)).await;
    }
    world.now += SECOND;
    world.counts(Hold::Newer).await;
    world.is_known().await;
    // Recounting changes nothing.
    for connector in 0..CONNECTORS {
        let name = name_of(connector);
        let since = place.storage.recount(&name, &by_me("so")).await.unwrap().unwrap();
        assert_eq!(since.is_some(), world.is_heard(&name));
    }
    world.is_right().await;
    world.is_known().await;
}

/// Runs twelve histories for each store, more in a soak test.
pub async fn statistics_equal_a_recount(place: Place) {
    let cases = if std::env::var_os("TENURE_SOAK").is_some() { 1_000 } else { 12 };
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 100, ..Config::default() };
    let handle = Handle::current();
    let played = tokio::task::block_in_place(|| {
        TestRunner::new(config).run(&histories(), |(events, tidies, goes_on)| {
            handle.block_on(play(&place, &events, tidies, goes_on));
            Ok(())
        })
    });
    if let Err(error) = played {
        panic!("{error}");
    }
}
