//! Simulated world of the switchboard: clocks, replicas, and the queue of events.

mod connector;
mod counting;
mod fault;
mod finish;
mod reader;
mod submit;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tenure_switchboard::StorageResult;
use tenure_switchboard::commit::Committer;
use tenure_switchboard::storage::sqlite::{SqliteStorage, WallClock};
use tenure_switchboard::storage::{ClockMeasurement, ClockReading, Inbox as _, Storage as _};
use tenure_switchboard::storage::{InboxQuery, InboxRead, TimeSource};
use tenure_wire::ingest::InboxCursor;
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use self::connector::SimConnector;
use self::counting::StatisticsHold;
use self::fault::DatabaseCopy;
use self::reader::InboxReader;
use self::submit::{EventProducer, PendingGroup, SentDraft};
use super::story::SwitchStep;
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
    Late(Vec<PendingGroup>),
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
    /// Submissions that wait for the next group.
    waiting: Vec<PendingGroup>,
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
    odd: Vec<CheckFinding>,
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
    backlog: Vec<SentDraft>,
    events: Vec<SentDraft>,
    /// Tokens by number: the source and whether it was revoked.
    tokens: Vec<(usize, bool)>,
    readers: Vec<InboxReader>,
    connectors: Vec<SimConnector>,
    counters: Vec<StatisticsHold>,
    copies: Vec<DatabaseCopy>,
    observed: InboxCursor,
    newest: Option<(Uuid, Micros)>,
    /// The store's clock when it was ahead and messages were stored.
    ahead: Vec<i64>,
    needs_adopting: bool,
    /// The store's clock was behind the right one.
    was_behind: bool,
    is_healed: bool,
    healed_at: Micros,
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
            odd: Vec::new(),
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
            ahead: Vec::new(),
            needs_adopting: false,
            was_behind: false,
            is_healed: false,
            healed_at: 0,
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
            let committer = self.committer();
            let (waiting, ticked) = (Vec::new(), None);
            self.replicas.push(SwitchReplica { is_alive: true, committer, waiting, ticked });
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
            if self.is_over || !self.odd.is_empty() {
                break;
            }
        }
        let mut findings = self.odd;
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
            SwitchEvent::LateBeat(beat) => self.late_beat(*beat),
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
            self.coverage.count("fault", fault.as_str());
        }
        strikes
    }

    fn reached(&mut self, outcome: &'static str) {
        self.coverage.count("outcome", outcome);
    }

    fn line(&mut self, who: &str, what: impl FnOnce() -> String) {
        self.trace.line(self.now as u64 * 1_000, who, what);
    }

    /// Unwraps the answer of an operation that cannot fail here.
    fn sound<T>(&mut self, what: &str, answer: StorageResult<T>) -> Option<T> {
        answer
            .map_err(|error| {
                let what = format!("{what}: {error}");
                self.odd.push(CheckFinding { checker: "error", what });
            })
            .ok()
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
        let since = self.replicas[replica].ticked.map(|(reading, at)| ClockMeasurement {
            turn: reading.turn,
            wall: reading.wall,
            elapsed: self.now - at,
        });
        if self.strikes(SwitchFault::SlowTick, 200) {
            self.soon(20 * SECOND, SwitchEvent::SlowTick(replica, since));
        } else if !self.strikes(SwitchFault::RequestLost, 100) {
            self.tick(replica, since);
        }
    }

    fn tick(&mut self, replica: usize, since: Option<ClockMeasurement>) {
        let answer = self.runtime.block_on(self.storage.tick(since, TimeSource::Now));
        let Some(reading) = self.sound("tick", answer) else { return };
        let ClockReading { turn, wall, reached } = reading;
        self.history.push(SwitchStep::Ticked { at: self.now, turn, wall, reached });
        let lead = (reached - self.unix()) / SECOND;
        self.line(&format!("r{replica}"), || format!("tick {turn}: {lead} s ahead"));
        let is_lost = self.strikes(SwitchFault::AnswerLost, 100);
        let now = self.now;
        if let Some(replica) = self.replicas.get_mut(replica).filter(|_| !is_lost) {
            replica.ticked = Some((reading, now));
        }
    }

    fn prune(&mut self, replica: usize) {
        self.soon(self.gap().max(self.scenario.tick * 3), SwitchEvent::Prune(replica));
        if self.replicas[replica].is_alive {
            self.prune_now(0);
        }
    }

    /// Deletes what is past its retention; afterwards messages stored before a time must be gone.
    fn prune_now(&mut self, stored_after: Micros) {
        let answer = self.runtime.block_on(self.storage.prune(self.scenario.keep));
        let Some(report) = self.sound("prune", answer) else { return };
        if report.keys > 0 {
            self.reached("keys-pruned");
            self.history.push(SwitchStep::KeysPruned(self.now));
        }
        if report.messages > 0 {
            self.reached("messages-pruned");
        }
        if report.messages > 0 || stored_after > 0 {
            self.take_inventory(stored_after);
        }
        self.line("retention", || format!("{} messages, {} keys", report.messages, report.keys));
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
                    let what = format!("the observer at {after} is diverged");
                    self.odd.push(CheckFinding { checker: "cursor", what });
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

    fn take_inventory(&mut self, stored_after: Micros) {
        let (rows, _, trimmed) = self.read_all(InboxCursor::default());
        self.history.push(SwitchStep::Inventory { at: self.now, stored_after, rows, trimmed });
    }

    /// Returns a valid token of a source, or creates one.
    fn token(&mut self, source: usize) -> usize {
        let valid = self.tokens.iter().rposition(|(of, revoked)| *of == source && !revoked);
        match valid.filter(|_| !self.rng.chance(200)) {
            Some(token) => token,
            None => self.make_token(source),
        }
    }
}
