//! Simulated world: processes, network, store, resource, and the queue of events.

mod describe;
mod effect;
mod fault;
mod message;
mod process;
#[cfg(test)]
mod tests;
mod watch;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::engine::{
    Engine, EngineEvent, GroupView, MemberSettings, StoreRequest, StoreResponse, Ticket,
    WorkOutcome,
};
use tenure_core::store::{Commit, Committed};
use tenure_core::{
    Code, DutyId, DutyKey, Epoch, GroupName, InstanceId, Label, Listing, LocalInstant, Nonce,
    StoreError, Target, Version,
};

use self::process::{LocalClock, Process, ProcessState};
use crate::Nanos;
use crate::backend::SimStore;
use crate::check::{self, CheckTimes, Story};
use crate::coverage::Coverage;
use crate::link::{NetworkPartition, SimLink};
use crate::rng::SimRng;
use crate::scenario::{Fault, Scenario};
use crate::sink::{EffectVerdict, Sink};
use crate::trace::Trace;
use crate::{CheckFinding, SeedReport};

/// Number of a process; it is never reused.
type Pid = usize;

/// A scheduled event.
#[derive(Debug)]
enum ScheduledItem {
    Tick(Pid),
    /// A request reaches the store; an echo is a duplicate whose response is not awaited.
    Arrive {
        pid: Pid,
        ticket: Ticket,
        request: StoreRequest,
        echo: bool,
    },
    /// The second half of a look.
    LookOn {
        pid: Pid,
        ticket: Ticket,
        view: GroupView,
        holders: bool,
        echo: bool,
    },
    Answer(Pid, Ticket, StoreResponse),
    Timeout(Pid, Ticket),
    Hint(Pid),
    List(Pid),
    /// The work on a duty continues, if the turn is still the same.
    Work(Pid, DutyId, Epoch, u64),
    ArriveData(Pid, DutyId, Epoch, u64, WorkRequest),
    Data(Pid, DutyId, Epoch, u64, WorkReply),
    Stopped(Pid, DutyId, Epoch, WorkOutcome),
    Start(usize),
    Resume(Pid),
    Heal(usize),
    StoreBack,
    Blow(Fault),
    Quiet,
}

/// A duty that was shed.
#[derive(Debug)]
struct Shed {
    at: Nanos,
    by: Pid,
    /// The members at that time.
    members: Vec<InstanceId>,
}

/// Request of work to the store or the resource.
#[derive(Clone, Debug)]
enum WorkRequest {
    Take { event: u64, nonce: Nonce },
    Load,
    Commit(Commit),
}

/// Reply to work.
#[derive(Clone, Debug)]
enum WorkReply {
    Taken { event: u64, verdict: EffectVerdict },
    Loaded(Version, u64),
    Committed { cursor: u64, committed: Committed },
    Failed,
}

/// The simulated world.
#[derive(Debug)]
pub(crate) struct SimWorld {
    scenario: Scenario,
    group: GroupName,
    rng: SimRng,
    now: Nanos,
    queue: BTreeMap<(Nanos, u64), ScheduledItem>,
    queued: u64,
    backend: SimStore,
    link: SimLink,
    sink: Sink,
    processes: Vec<Process>,
    /// The process on each machine.
    slots: Vec<Option<Pid>>,
    /// The duties that are listed, and whether each is paused.
    listed: BTreeMap<DutyId, bool>,
    named: usize,
    /// Duties that were shed and have not been started again.
    shed: BTreeMap<DutyId, Shed>,
    /// The cursor in the checkpoint of each duty.
    cursors: BTreeMap<DutyId, u64>,
    /// Sessions that the store has ended early: later beliefs under them are not the engine's
    /// fault.
    excused: BTreeSet<Nonce>,
    /// Sessions that the store has lost, with the index of the reset.
    forgotten: BTreeMap<Nonce, usize>,
    /// Whether processes start with the shorter TTL now.
    shorter: bool,
    quiet: bool,
    trace: Trace,
    coverage: Coverage,
    story: Story,
}

impl SimWorld {
    /// Creates the world of a scenario.
    pub(crate) fn new(scenario: Scenario, traced: bool) -> Self {
        // A short word is always a valid name.
        let group = GroupName::new("g").expect("a valid name");
        // One extra machine, which is started at the end when all others are leaving.
        let slots = scenario.slots + 1;
        let mut world = Self {
            rng: SimRng::new(scenario.seed ^ 0x5eed),
            group: group.clone(),
            now: 0,
            queue: BTreeMap::new(),
            queued: 0,
            backend: SimStore::new(scenario.kind, group, scenario.ttl),
            link: SimLink::new(&scenario, slots),
            sink: Sink::default(),
            processes: Vec::new(),
            slots: vec![None; slots],
            listed: BTreeMap::new(),
            named: scenario.duties,
            shed: BTreeMap::new(),
            cursors: BTreeMap::new(),
            excused: BTreeSet::new(),
            forgotten: BTreeMap::new(),
            shorter: false,
            quiet: false,
            trace: Trace::new(traced),
            coverage: Coverage::default(),
            story: Story::default(),
            scenario,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let faults: Vec<&str> = self.scenario.faults.iter().map(|fault| fault.as_str()).collect();
        let Scenario { kind, ttl, slots, layout, duties, rates, .. } = &self.scenario;
        let (kind, ttl) = (kind.as_str(), ttl.get());
        self.trace.line(0, "world", || {
            format!("{kind} ttl {ttl:?} machines {slots} {layout} duties {duties} rates {rates:?}")
        });
        self.trace.line(0, "world", || format!("faults {}", faults.join(" ")));
        self.coverage.count("store", kind);
        self.listed = (0..*duties).map(|number| (Scenario::duty(number), false)).collect();
        if self.scenario.placed {
            (0..self.rng.below(4)).for_each(|_| self.operate());
        }
        for slot in 0..self.scenario.slots {
            // Some processes start later.
            let later = if self.rng.chance(700) { 0 } else { 5 * self.scenario.ttl_ns() };
            let after = self.rng.below(self.scenario.ttl_ns() / 4 + later);
            self.after(after, ScheduledItem::Start(slot));
        }
        self.plan_blows();
        self.at(self.scenario.quiet_from, ScheduledItem::Quiet);
    }

    /// Runs to the end and judges the run.
    pub(crate) fn run(mut self) -> SeedReport {
        while let Some(((at, _), item)) = self.queue.pop_first() {
            if at >= self.end() || self.story.is_broken() {
                break;
            }
            if at > self.now {
                self.now = at;
                self.backend.set_time(at);
            }
            self.happen(item);
        }
        if !self.story.is_broken() {
            self.now = self.end();
            self.backend.set_time(self.now);
        }
        self.finish();
        let findings = check::judge(&self.scenario, &self.story);
        for finding in &findings {
            self.trace.line(self.now, "checker", || finding.to_string());
        }
        SeedReport { findings, coverage: self.coverage, trace: self.trace.into_lines() }
    }

    /// Returns the end of the run: the group has settled and stayed settled for a while.
    fn end(&self) -> Nanos {
        CheckTimes::of(&self.scenario, &self.story).end
    }

    fn at(&mut self, at: Nanos, item: ScheduledItem) {
        self.queued += 1;
        self.queue.insert((at.max(self.now), self.queued), item);
    }

    fn after(&mut self, after: Nanos, item: ScheduledItem) {
        self.at(self.now + after, item);
    }

    fn happen(&mut self, item: ScheduledItem) {
        let Some(item) = self.admit(item) else {
            return;
        };
        match item {
            ScheduledItem::Tick(pid) => self.tick(pid),
            ScheduledItem::Arrive { pid, ticket, request, echo } => {
                self.arrive(pid, ticket, request, echo);
            }
            ScheduledItem::LookOn { pid, ticket, view, holders, echo } => {
                self.look_on(pid, ticket, view, holders, echo);
            }
            ScheduledItem::Answer(pid, ticket, answer) => self.answer(pid, ticket, answer),
            ScheduledItem::Timeout(pid, ticket) => self.time_out(pid, ticket),
            ScheduledItem::Hint(pid) => {
                self.processes[pid].hinted = false;
                self.step(pid, EngineEvent::Hint);
            }
            ScheduledItem::List(pid) => self.list(pid),
            ScheduledItem::Work(pid, duty, epoch, turn) => self.work_on(pid, &duty, epoch, turn),
            ScheduledItem::ArriveData(pid, duty, epoch, turn, data) => {
                self.arrive_data(pid, duty, epoch, turn, data);
            }
            ScheduledItem::Data(pid, duty, epoch, turn, reply) => {
                self.data(pid, &duty, epoch, turn, reply);
            }
            ScheduledItem::Stopped(pid, duty, epoch, how) => self.stopped(pid, duty, epoch, how),
            // After faults have ended no process is started.
            ScheduledItem::Start(_) if self.quiet => {}
            ScheduledItem::Start(slot) => self.start(slot),
            ScheduledItem::Resume(pid) => self.resume(pid),
            ScheduledItem::Heal(slot) => self.heal(slot),
            ScheduledItem::StoreBack => self.store_back(),
            ScheduledItem::Blow(fault) => self.blow(fault),
            ScheduledItem::Quiet => self.calm(),
        }
    }

    /// Drops items for a process that is gone, and delays those for one that is paused.
    fn admit(&mut self, item: ScheduledItem) -> Option<ScheduledItem> {
        let (pid, is_message) = match &item {
            ScheduledItem::Tick(pid)
            | ScheduledItem::Timeout(pid, _)
            | ScheduledItem::Work(pid, ..) => (*pid, false),
            ScheduledItem::Stopped(pid, ..) | ScheduledItem::List(pid) => (*pid, false),
            ScheduledItem::Answer(pid, ..)
            | ScheduledItem::Hint(pid)
            | ScheduledItem::Data(pid, ..) => (*pid, true),
            _ => return Some(item),
        };
        match self.processes[pid].life {
            ProcessState::Runs => Some(item),
            ProcessState::Gone => None,
            ProcessState::Paused { asleep } => {
                if let ScheduledItem::Hint(_) = item {
                    self.processes[pid].hinted = false;
                } else if !(asleep && is_message) {
                    self.processes[pid].backlog.push(item);
                }
                None
            }
        }
    }

    fn local(&self, pid: Pid) -> LocalInstant {
        self.processes[pid].clock.local(self.now)
    }

    fn say(&mut self, pid: Pid, what: impl FnOnce() -> String) {
        self.trace.line(self.now, &self.processes[pid].id, what);
    }

    fn key(&self, duty: &DutyId) -> DutyKey {
        DutyKey { group: self.group.clone(), id: duty.clone() }
    }

    fn broken(&mut self, checker: &'static str, what: String) {
        self.story.odd.push(CheckFinding { checker, what });
    }

    fn settings(&self, slot: usize, instance: InstanceId) -> MemberSettings {
        let given = &self.scenario;
        let other = given.mixed && slot > 0;
        let ttl = if self.shorter != other { given.short_ttl() } else { given.ttl };
        let mut settings = MemberSettings::new(self.group.clone(), instance, ttl, given.layout);
        settings.weight = given.weights.get(slot).copied().unwrap_or(1);
        settings.drain = given.drain;
        settings.window = given.window;
        settings.look_every = given.look_every;
        settings.progress = given.progress;
        settings.record_renewals = given.record_renewals;
        settings.room = given.rooms.get(slot).copied().unwrap_or(MemberSettings::DEFAULT_ROOM);
        settings.rollout = given.rollout();
        if given.placed {
            let (name, zone) = Scenario::place(slot);
            (settings.name, settings.zone) = (Some(name), Some(zone));
        }
        settings
    }

    fn start(&mut self, slot: usize) {
        if self.slots[slot].is_some() {
            return;
        }
        let pid = self.processes.len();
        // A letter and two numbers are always a valid id.
        let id = InstanceId::new(format!("i{slot}.{pid}")).expect("a valid id");
        let rate = self.scenario.rates.get(slot).copied().unwrap_or(1_000_000);
        // Far from the limit of the clock: local clocks start anywhere in the first days.
        let clock = LocalClock::new(self.rng.below(1 << 48), rate);
        let mut settings = self.settings(slot, id.clone());
        if self.scenario.revisions {
            settings.revision = Label::new(format!("v{}", self.rng.below(2))).ok();
        }
        let ttl = settings.ttl;
        let engine = Engine::new(settings, self.rng.wide(), clock.local(self.now));
        self.processes.push(Process {
            id,
            ttl,
            slot,
            clock,
            engine,
            life: ProcessState::Runs,
            leaves: false,
            evicted: false,
            work: BTreeMap::new(),
            asked: BTreeMap::new(),
            heard: 0,
            renewed: None,
            woke: None,
            slept: false,
            forgotten: None,
            backlog: Vec::new(),
            tick_at: None,
            hinted: false,
            incarnation: self.backend.incarnation(),
            session: None,
            view: None,
            targets: Listing::default(),
            acquired: BTreeMap::new(),
            rested: BTreeMap::new(),
            since: self.now,
            spins: 0,
        });
        self.slots[slot] = Some(pid);
        self.say(pid, || "starts".to_owned());
        self.after(0, ScheduledItem::List(pid));
        self.schedule_tick(pid);
    }

    fn tick(&mut self, pid: Pid) {
        let process = &mut self.processes[pid];
        if process.tick_at.is_some_and(|at| at > self.now) {
            return;
        }
        process.tick_at = None;
        if process.engine.wake_at() > process.clock.local(self.now) {
            self.schedule_tick(pid);
            return;
        }
        process.spins += 1;
        if process.spins > 1000 {
            let id = process.id.clone();
            self.broken("work", format!("{id} spins without progress"));
            return;
        }
        self.step(pid, EngineEvent::Tick);
    }

    /// Steps the engine with one event and executes its effects.
    fn step(&mut self, pid: Pid, event: EngineEvent) {
        let now = self.local(pid);
        if !matches!(event, EngineEvent::Tick) {
            self.processes[pid].spins = 0;
        }
        self.say(pid, || format!("< {}", describe::event(&event)));
        for effect in self.processes[pid].engine.step(event, now) {
            self.execute(pid, effect);
        }
        self.watch_step(pid);
        self.schedule_tick(pid);
    }

    /// Schedules the engine's next tick, a little late as in reality.
    fn schedule_tick(&mut self, pid: Pid) {
        let process = &self.processes[pid];
        if process.life == ProcessState::Gone {
            return;
        }
        let due = process.clock.virtually(process.engine.wake_at()).max(self.now);
        if process.tick_at.is_some_and(|at| at <= due && at > self.now) {
            return;
        }
        let at = due + self.rng.between(1_000, 2_000_000);
        self.processes[pid].tick_at = Some(at);
        self.at(at, ScheduledItem::Tick(pid));
    }

    /// Reads the list of duties, and schedules the next read.
    fn list(&mut self, pid: Pid) {
        self.list_later(pid);
        if !self.quiet && self.scenario.has(Fault::ListFails) && self.rng.chance(300) {
            self.coverage.count("fault", Fault::ListFails.as_str());
            let error = StoreError::refused(Code::BadTargets, "simulated failure");
            return self.step(pid, EngineEvent::Unlisted(error));
        }
        self.list_all(pid);
    }

    /// Gives the process the current list.
    fn list_all(&mut self, pid: Pid) {
        let targets = self
            .listed
            .iter()
            .map(|(id, paused)| Target { paused: *paused, ..Target::new(id.clone()) });
        let listing = Listing::new(targets);
        self.processes[pid].targets = listing.clone();
        self.step(pid, EngineEvent::Listed(listing));
    }

    fn list_later(&mut self, pid: Pid) {
        let every = self.scenario.ttl_ns() / 2;
        let again = self.rng.between(every / 2, every);
        self.after(again, ScheduledItem::List(pid));
    }

    fn heal(&mut self, slot: usize) {
        self.trace.line(self.now, "world", || format!("machine {slot} is connected"));
        self.link.set(slot, NetworkPartition::default());
        self.link.listen(slot, true);
        // A reconnected watch gives one hint.
        if let Some(pid) = self.slots[slot] {
            self.hint(pid);
        }
    }

    fn hint(&mut self, pid: Pid) {
        let process = &mut self.processes[pid];
        if process.hinted || process.life == ProcessState::Gone {
            return;
        }
        process.hinted = true;
        let takes = self.link.takes(self.now, &mut self.rng);
        self.after(takes, ScheduledItem::Hint(pid));
    }

    /// Returns the virtual time that a local duration takes on this machine.
    fn lasts(&self, pid: Pid, local: Duration) -> Nanos {
        let clock = self.processes[pid].clock;
        clock.virtually(clock.local(self.now).plus(local)).saturating_sub(self.now)
    }
}
