//! Simulated world of the switchboard: clocks, replicas, and the queue of events.

mod commit;
mod connector;
mod convert;
mod counting;
mod fault;
mod finish;
mod reader;
mod submit;
mod token;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::Receiver;

use tenure_switchboard::StorageResult;
use tenure_switchboard::commit::Committer;
use tenure_switchboard::storage::sqlite::{SqliteStorage, WallClock};
use tenure_switchboard::storage::{
    ClockMeasurement, ClockReading, Inbox as _, InboxQuery, InboxRead, PruneReport, Storage as _,
    TimeSource,
};
use tenure_wire::ingest::InboxCursor;
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use self::connector::SimConnector;
use self::counting::StatisticsHold;
use self::fault::DatabaseCopy;
use self::reader::InboxReader;
use self::submit::{EventProducer, QueuedSubmission};
use super::story::{SourceEvent, SwitchStep};
use super::{DAY, MINUTE, Micros, SECOND, SwitchFault, SwitchScenario, check};
use crate::SeedReport;
use crate::check::CheckFinding;
use crate::coverage::Coverage;
use crate::rng::SimRng;
use crate::trace::Trace;

/// Unix time of the start: in the future of any machine, because a new database has its time.
const START: i64 = 4_102_444_800 * SECOND;
/// Average time between two actions of an actor after the faults.
const QUIET_GAP: Micros = 5 * MINUTE;
/// A time after every run.
const FOREVER: Micros = Micros::MAX;
/// Time in which a replica that waits for nothing commits a submission.
const MAX_COMMIT_TIME: u64 = 50_000;

/// The store's clock.
#[derive(Debug, Default)]
struct VirtualWall(AtomicI64);

impl WallClock for VirtualWall {
    fn now(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A scheduled event of the switchboard.
#[derive(Debug)]
enum SwitchEvent {
    Submit(usize),
    Commit(usize),
    /// A group that its clients gave up.
    Late(Vec<QueuedSubmission>),
    Takeover,
    Tick(usize),
    /// A tick that was sent with this measurement.
    SlowTick(usize, Option<ClockMeasurement>),
    Prune(usize),
    Revive(usize),
    Read(usize),
    Beat(usize),
    LateBeat(Box<connector::BeatDraft>),
    Count,
    Fault,
    Adopt,
    Backup,
    Heal,
    End,
}

/// A process of the switchboard.
struct SwitchReplica {
    is_alive: bool,
    committer: Committer,
    /// Numbers of submissions that its committer has committed in one transaction each.
    committed: Receiver<usize>,
    /// Submissions that wait for the next group.
    waiting: Vec<QueuedSubmission>,
    /// Answer to its last tick, and when it came.
    ticked: Option<(ClockReading, Micros)>,
}

/// All state of a run.
pub(super) struct SwitchWorld {
    scenario: SwitchScenario,
    rng: SimRng,
    trace: Trace,
    coverage: Coverage,
    history: Vec<SwitchStep>,
    findings: Vec<CheckFinding>,
    now: Micros,
    queue: BTreeMap<(Micros, u64), SwitchEvent>,
    scheduled: u64,
    runtime: Runtime,
    wall: Arc<VirtualWall>,
    /// Difference of the store's clock from the right time.
    offset: i64,
    storage: Arc<SqliteStorage>,
    replicas: Vec<SwitchReplica>,
    producers: Vec<EventProducer>,
    /// Newest epoch and holder of each duty.
    epochs: Vec<u64>,
    instances: u64,
    /// Events that were not acknowledged yet.
    backlog: Vec<SourceEvent>,
    events: Vec<SourceEvent>,
    /// Tokens by number: the source and whether it was revoked.
    tokens: Vec<(usize, bool)>,
    readers: Vec<InboxReader>,
    connectors: Vec<SimConnector>,
    counters: Vec<StatisticsHold>,
    copies: Vec<DatabaseCopy>,
    observed: InboxCursor,
    newest: Option<(Uuid, Micros)>,
    needs_adopting: bool,
    is_healed: bool,
    /// The last position when the faults ended.
    last_at_heal: i64,
    is_over: bool,
}

impl SwitchWorld {
    pub(super) fn new(scenario: SwitchScenario, traced: bool) -> Self {
        // Without I/O and threads, a runtime always starts.
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let wall = Arc::new(VirtualWall(AtomicI64::new(START)));
        // An empty database in memory can always be created.
        let storage = SqliteStorage::in_memory(wall.clone()).expect("a database in memory");
        let mut world = Self {
            rng: SimRng::new(scenario.seed),
            trace: Trace::new(traced),
            coverage: Coverage::default(),
            history: Vec::new(),
            findings: Vec::new(),
            now: 0,
            queue: BTreeMap::new(),
            scheduled: 0,
            runtime,
            wall,
            offset: 0,
            storage: Arc::new(storage),
            replicas: Vec::new(),
            producers: Vec::new(),
            epochs: vec![0; scenario.duties],
            instances: 0,
            backlog: Vec::new(),
            events: Vec::new(),
            tokens: Vec::new(),
            readers: Vec::new(),
            connectors: Vec::new(),
            counters: Vec::new(),
            copies: Vec::new(),
            observed: InboxCursor::default(),
            newest: None,
            needs_adopting: false,
            is_healed: false,
            last_at_heal: 0,
            is_over: false,
            scenario,
        };
        world.begin();
        world
    }

    /// Creates the actors and schedules their first events.
    fn begin(&mut self) {
        // The new database has the time of this machine; no replica has measured that much.
        let since = ClockMeasurement { turn: 0, wall: START, elapsed: 1_000 * 366 * DAY };
        self.tick(0, Some(since));
        let SwitchScenario { replicas, readers, connectors, heal, .. } = self.scenario;
        for replica in 0..replicas {
            let replica_process = self.start_replica();
            self.replicas.push(replica_process);
            self.soon(self.scenario.tick, SwitchEvent::Tick(replica));
            self.soon(self.scenario.tick * 3, SwitchEvent::Prune(replica));
        }
        self.enlist_producers();
        for reader in 0..readers {
            self.enlist_reader();
            self.soon(self.scenario.gap, SwitchEvent::Read(reader));
        }
        for connector in 0..connectors {
            self.enlist_connector();
            self.soon(self.scenario.gap, SwitchEvent::Beat(connector));
        }
        self.take_over_statistics();
        for event in [SwitchEvent::Count, SwitchEvent::Takeover, SwitchEvent::Backup] {
            self.soon(heal / 4, event);
        }
        self.soon(self.scenario.fault_gap, SwitchEvent::Fault);
        self.at(heal, SwitchEvent::Heal);
    }

    /// Schedules an event.
    fn at(&mut self, at: Micros, event: SwitchEvent) {
        self.scheduled += 1;
        self.queue.insert((at, self.scheduled), event);
    }

    /// Schedules an event in up to twice the average time.
    fn soon(&mut self, average: Micros, event: SwitchEvent) {
        let delay = self.rng.between(1, 2 * average as u64) as Micros;
        self.at(self.now + delay, event);
    }

    pub(super) fn run(mut self) -> SeedReport {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            self.now = at.max(self.now);
            self.set_wall();
            self.handle(event);
            if self.is_over || !self.findings.is_empty() {
                break;
            }
        }
        let mut findings = self.findings;
        if findings.is_empty() {
            findings = check::judge(self.scenario.keep, &self.history);
        }
        SeedReport { findings, coverage: self.coverage, trace: self.trace.into_lines() }
    }

    fn handle(&mut self, event: SwitchEvent) {
        match event {
            SwitchEvent::Submit(producer) => self.submit(producer),
            SwitchEvent::Commit(replica) => self.commit(replica),
            SwitchEvent::Late(group) => self.commit_late(group),
            SwitchEvent::Takeover => self.take_over(),
            SwitchEvent::Tick(replica) => self.send_tick(replica),
            SwitchEvent::SlowTick(replica, since) => {
                if self.replicas[replica].is_alive {
                    self.tick(replica, since);
                }
            }
            SwitchEvent::Prune(replica) => self.prune(replica),
            SwitchEvent::Revive(replica) => self.replicas[replica].is_alive = true,
            SwitchEvent::Read(reader) => self.read(reader),
            SwitchEvent::Beat(connector) => self.beat(connector),
            SwitchEvent::LateBeat(beat) => self.store_beat(*beat),
            SwitchEvent::Count => self.count(),
            SwitchEvent::Fault => self.strike(),
            SwitchEvent::Adopt => self.adopt(),
            SwitchEvent::Backup => self.back_up(),
            SwitchEvent::Heal => self.heal(),
            SwitchEvent::End => self.finish(),
        }
    }

    /// Returns the right Unix time.
    fn unix(&self) -> i64 {
        START + self.now
    }

    fn wall(&self) -> i64 {
        self.unix() + self.offset
    }

    fn set_wall(&mut self) {
        self.wall.0.store(self.wall(), Ordering::Relaxed);
    }

    /// Whether a fault strikes that happens along the way.
    fn strikes(&mut self, fault: SwitchFault, per_mille: u64) -> bool {
        let strikes = !self.is_healed && self.scenario.has(fault) && self.rng.chance(per_mille);
        if strikes {
            self.struck(fault);
        }
        strikes
    }

    fn struck(&mut self, fault: SwitchFault) {
        self.coverage.count("fault", fault.as_str());
        self.line("!", || fault.as_str().to_owned());
    }

    fn reached(&mut self, outcome: &'static str) {
        self.coverage.count("outcome", outcome);
    }

    fn line(&mut self, who: &str, what: impl FnOnce() -> String) {
        self.trace.line(self.now as u64 * 1_000, who, what);
    }

    fn find(&mut self, checker: &'static str, what: String) {
        self.findings.push(CheckFinding { checker, what });
    }

    /// Unwraps the answer of an operation that cannot fail here.
    fn sound<T>(&mut self, what: &str, answer: StorageResult<T>) -> Option<T> {
        answer.map_err(|error| self.find("error", format!("{what}: {error}"))).ok()
    }

    /// Returns the average time between two actions of an actor: longer after the faults.
    fn gap(&self) -> Micros {
        if self.is_healed { QUIET_GAP } else { self.scenario.gap }
    }

    /// Sends a tick, as the upkeep of a replica does.
    fn send_tick(&mut self, replica: usize) {
        // As in the product, replicas tick in turn: the jitter is small.
        let jitter = self.rng.below(self.scenario.tick as u64 / 6) as Micros;
        self.at(self.now + self.scenario.tick + jitter, SwitchEvent::Tick(replica));
        if !self.replicas[replica].is_alive {
            return;
        }
        let since = self.measured(replica);
        if self.strikes(SwitchFault::SlowTick, 200) {
            self.soon(20 * SECOND, SwitchEvent::SlowTick(replica, since));
        } else if !self.strikes(SwitchFault::RequestLost, 100) {
            self.tick(replica, since);
        }
    }

    /// Returns what a replica has measured since its last tick.
    fn measured(&self, replica: usize) -> Option<ClockMeasurement> {
        self.replicas[replica].ticked.map(|(reading, at)| ClockMeasurement {
            turn: reading.turn,
            wall: reading.wall,
            elapsed: self.now - at,
        })
    }

    fn tick(&mut self, replica: usize, since: Option<ClockMeasurement>) {
        let answer = self.runtime.block_on(self.storage.tick(since, TimeSource::Now));
        let Some(reading) = self.sound("tick", answer) else { return };
        let ClockReading { turn, wall, reached } = reading;
        self.history.push(SwitchStep::Ticked { at: self.now, turn, wall, reached });
        let (unix, second) = (self.unix(), SECOND);
        self.line(&format!("r{replica}"), || {
            let measured = since.map_or_else(
                || "reads the clock of retention".to_owned(),
                |it| format!("measured {} s since turn {}", it.elapsed / second, it.turn),
            );
            let ahead = |clock: i64| (clock - unix) / second;
            let (reached, wall) = (ahead(reached), ahead(wall));
            format!(
                "{measured}: turn {turn}, {reached} s ahead; the store's clock is {wall} s ahead"
            )
        });
        let is_lost = self.strikes(SwitchFault::AnswerLost, 100);
        let now = self.now;
        if let Some(replica) = self.replicas.get_mut(replica).filter(|_| !is_lost) {
            replica.ticked = Some((reading, now));
        }
    }

    fn prune(&mut self, replica: usize) {
        self.soon(self.gap().max(self.scenario.tick * 3), SwitchEvent::Prune(replica));
        if self.replicas[replica].is_alive {
            self.prune_now();
        }
    }

    /// Deletes what is past its retention. Returns the position up to which messages are deleted.
    fn prune_now(&mut self) -> i64 {
        let answer = self.runtime.block_on(self.storage.prune(self.scenario.keep));
        let Some(PruneReport { messages, keys, .. }) = self.sound("prune", answer) else {
            return 0;
        };
        for (count, outcome) in [(keys, "keys-pruned"), (messages, "messages-pruned")] {
            if count > 0 {
                self.reached(outcome);
            }
        }
        let (rows, _, trimmed) = self.read_all(InboxCursor::default());
        self.line("retention", || {
            let left = rows.len();
            format!("deletes {messages} messages, up to {trimmed}, and {keys} keys: {left} stay")
        });
        self.history.push(SwitchStep::Pruned { keys, rows, trimmed });
        trimmed
    }

    /// Reads all messages after a cursor.
    fn read_all(&mut self, mut after: InboxCursor) -> (Vec<(i64, Uuid)>, InboxCursor, i64) {
        let mut rows = Vec::new();
        loop {
            let query = InboxQuery { after, limit: 1_000, ..InboxQuery::default() };
            let answer = self.runtime.block_on(self.storage.inbox(&query));
            match self.sound("inbox", answer) {
                Some(InboxRead::Page(page)) => {
                    rows.extend(page.messages.iter().map(|it| (it.position, it.request_id)));
                    after = page.next_after;
                    if page.at_end {
                        return (rows, after, page.trimmed);
                    }
                }
                Some(InboxRead::Diverged(_)) => {
                    self.find("cursor", format!("the observer at {after} is diverged"));
                    return (rows, after, 0);
                }
                None => return (rows, after, 0),
            }
        }
    }

    /// Lets the observer read what is new.
    fn observe(&mut self) {
        let (rows, after, _) = self.read_all(self.observed);
        self.observed = after;
        self.newest = rows.last().map(|(_, id)| (*id, self.now)).or(self.newest);
        self.history.push(SwitchStep::Observed(rows));
    }
}
