//! Judges what happened. Nothing here knows how the engine works: only what it may never do.
//!
//! | checker | what it asks |
//! |---|---|
//! | L1, L2, L3, C1, D1, B1 | `core::invariant` |
//! | skipped | no event is passed over: effects are taken in order, without a gap |
//! | held | after faults end every duty is held in time, and stays held |
//! | spread | at the end everybody has the share that the roster gives, and nobody idles |
//! | moves | who sheds a duty has more than its share, and no duty is moved twice in the window |
//! | quiet | in a group that is settled nothing changes hands |
//! | work | no work begins while work on the same duty still runs; no engine spins |
//! | end | who ends has stopped all work; who was asked to go is gone; nobody gives up |
//! | deadline | nobody is told that it may act for longer than the store keeps its hold |
//! | reset | nobody who saw the store forget its sessions begins beside a holder of before |
//! | records | a hold that was acquired ends with a record of its end |
//! | fence | no checkpoint is taken under an epoch once a newer one was granted |
//! | replay | the same seed gives the same trace |
//!
//! Checks that are made during the run, and end it, are in `world/watch.rs`.

mod held;
mod moves;
mod promise;
mod records;
mod reset;
mod spread;

use std::collections::BTreeMap;
use std::fmt;

use tenure_core::engine::{GroupConfig, MemberStatus};
use tenure_core::invariant::{self, Step};
use tenure_core::roster::{Pin, RosterMember};
use tenure_core::store::Member;
use tenure_core::{DutyId, Epoch, InstanceId};

pub use moves::{DutyMove, WorkTurn};
pub use promise::Promise;
pub use records::RecordNote;
pub use reset::Outlived;

use crate::Nanos;
use crate::scenario::{Fault, Scenario};

/// Something that must not happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFinding {
    /// The checker that found it.
    pub checker: &'static str,
    /// Description.
    pub what: String,
}

impl fmt::Display for CheckFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.checker, self.what)
    }
}

/// Recording of a run, for the checkers.
#[derive(Debug, Default)]
pub struct Story {
    /// Grants, effects, checkpoints and beliefs.
    pub history: Vec<Step>,
    /// Duties that were shed for the sake of balance.
    pub moves: Vec<DutyMove>,
    /// Work that began, was asked to end, or was cancelled.
    pub turns: Vec<WorkTurn>,
    /// Records about holds.
    pub notes: Vec<RecordNote>,
    /// Deadlines that work was given.
    pub promises: Vec<Promise>,
    /// Beliefs under sessions that the store has forgotten.
    pub outlived: Vec<Outlived>,
    /// The members at each time that the store forgot all sessions.
    pub witnesses: Vec<Vec<InstanceId>>,
    /// Until when members leave duties alone whose work had ended by itself.
    pub rests: BTreeMap<DutyId, Nanos>,
    /// Findings made during the run.
    pub odd: Vec<CheckFinding>,
    /// State at the end of the run.
    pub last: Final,
}

impl Story {
    /// Whether there is no sense in going on.
    pub fn is_broken(&self) -> bool {
        !self.odd.is_empty()
    }
}

/// State at the end of the run.
#[derive(Clone, Debug, Default)]
pub struct Final {
    /// The duties that somebody is to hold, by name.
    pub wanted: Vec<DutyId>,
    /// Instances that may act on each duty.
    pub held: Vec<(DutyId, InstanceId)>,
    /// The processes that are there.
    pub alive: Vec<InstanceId>,
    /// The holds under which somebody's work runs.
    pub running: Vec<(InstanceId, DutyId, Epoch)>,
    /// Duties that operators pinned.
    pub pins: BTreeMap<DutyId, Pin>,
    /// Instances that were asked to leave and are still members.
    pub going: Vec<InstanceId>,
    /// Members that may hold duties.
    pub seats: Vec<RosterMember>,
}

/// When a group must have done what, after faults have ended.
#[derive(Clone, Copy, Debug)]
pub struct CheckTimes {
    /// Faults have ended.
    pub quiet: Nanos,
    /// Every duty is held.
    pub held: Nanos,
    /// Nothing moves any more.
    pub settled: Nanos,
    /// The end of the run.
    pub end: Nanos,
    /// Longest time that a handover may leave a duty without a holder.
    pub gap: Nanos,
}

impl CheckTimes {
    /// The times of a run.
    pub fn of(scenario: &Scenario, story: &Story) -> Self {
        Self::after(scenario, story.rests.values().max().copied().unwrap_or(0))
    }

    /// The times of one duty: it is to be held when its own rest is over. Others may move as long
    /// as any rests, because all shares depend on all.
    fn of_duty(self, scenario: &Scenario, story: &Story, duty: &DutyId) -> Self {
        let rest = story.rests.get(duty).copied().unwrap_or(0);
        Self { held: Self::after(scenario, rest).held, ..self }
    }

    fn after(scenario: &Scenario, rests_until: Nanos) -> Self {
        let tick = scenario.at_most(scenario.look_every);
        let ttl = scenario.at_most(scenario.ttl.get());
        // Joining and claiming are some round trips, and listing too.
        let trips = 20 * scenario.delay + 20_000_000;
        let once = ttl + 2 * tick + trips;
        // What a store has forgotten shows only at the resource, and is claimed again then.
        let lossy = if scenario.is_lossy() { 2 * ttl } else { 0 };
        let held = scenario.quiet_from.max(rests_until) + once + lossy;
        let moves = scenario.at_most(scenario.window + scenario.drain) + 3 * tick + trips;
        let rollout = if scenario.revisions { scenario.at_most(scenario.rollout()) } else { 0 };
        let settled = held + moves + rollout;
        let (quiet, gap, end) = (scenario.quiet_from, 2 * tick + trips, settled + 2 * ttl);
        Self { quiet, held, settled, end, gap }
    }
}

/// Judges a run by everything that holds in its class.
pub fn judge(scenario: &Scenario, story: &Story) -> Vec<CheckFinding> {
    let mut findings = story.odd.clone();
    for check in invariants(scenario) {
        let broken = check(&story.history).err();
        let found = |broken: invariant::Violation| {
            let what = broken.to_string();
            CheckFinding { checker: broken.rule, what }
        };
        findings.extend(broken.map(found));
    }
    if story.is_broken() {
        return findings;
    }
    let mut add = |result: Result<(), CheckFinding>| findings.extend(result.err());
    let times = CheckTimes::of(scenario, story);
    // Where there is no room for all, nobody can say whose turn it is to wait.
    let judged = if spread::is_short(&story.last) { &[] } else { &story.last.wanted[..] };
    for duty in judged {
        let times = times.of_duty(scenario, story, duty);
        add(held::one_duty(&story.history, duty, times));
    }
    let Final { alive, running, .. } = &story.last;
    add(records::complete(&story.notes, alive, running, scenario.is_lossy()));
    if !scenario.has(Fault::ClockBeyond) {
        add(promise::kept(&story.promises));
        add(reset::waited(&story.history, &story.outlived, &story.witnesses));
    }
    add(gone(&story.last));
    add(spread::fair(&story.last));
    if !scenario.is_lossy() {
        add(moves::justified(&story.moves));
        add(moves::not_twice(&story.moves, scenario.window));
    }
    add(moves::quiet(&story.turns, times));
    findings
}

type Invariant = fn(&[Step]) -> Result<(), invariant::Violation>;

/// A store that forgets grants epochs again and loses checkpoints: there only the resource judges.
/// Clocks beyond the margin, or a store that forgets, make beliefs overlap.
fn invariants(scenario: &Scenario) -> Vec<Invariant> {
    let mut checks: Vec<Invariant> =
        vec![invariant::effects_never_go_back, invariant::no_event_twice];
    if scenario.is_lossy() {
        checks.push(effects_of_one);
        return checks;
    }
    checks.push(invariant::one_instance_per_epoch);
    checks.push(invariant::epochs_grow);
    checks.push(invariant::checkpoint_never_goes_back);
    checks.push(commits_are_fenced);
    if !scenario.has(Fault::ClockBeyond) {
        checks.push(invariant::one_believes);
    }
    checks
}

/// No checkpoint is taken under an epoch once a newer one was granted (R14).
fn commits_are_fenced(history: &[Step]) -> Result<(), invariant::Violation> {
    let mut newest = BTreeMap::new();
    for (at, step) in history.iter().enumerate() {
        match step {
            Step::Granted { duty, epoch, .. } => {
                newest.insert(duty, *epoch);
            }
            Step::Committed { duty, epoch, .. } if newest.get(duty).is_some_and(|n| epoch < n) => {
                let what = format!("a checkpoint of {duty} is taken under the old epoch {epoch}");
                return Err(invariant::Violation { rule: "fence", at, what });
            }
            _ => {}
        }
    }
    Ok(())
}

/// L1, of effects alone.
fn effects_of_one(history: &[Step]) -> Result<(), invariant::Violation> {
    let effects: Vec<Step> =
        history.iter().filter(|step| matches!(step, Step::Effect { .. })).cloned().collect();
    invariant::one_instance_per_epoch(&effects)
}

fn gone(last: &Final) -> Result<(), CheckFinding> {
    match last.going.first() {
        Some(id) => Err(CheckFinding { checker: "end", what: format!("{id} was asked to go") }),
        None => Ok(()),
    }
}

/// The seats of the members that an engine runs: what they say themselves, and what operators want.
pub fn seats(members: &[Member], group: &GroupConfig) -> Vec<RosterMember> {
    let seat = |member: &Member| {
        let mut seat = MemberStatus::read(&member.note)?.seat(member);
        group.adjust(&mut seat);
        Some(seat)
    };
    members.iter().filter_map(seat).collect()
}

/// The same seed gives the same trace.
pub fn same_trace(first: &[String], second: &[String]) -> Result<(), CheckFinding> {
    if first == second {
        return Ok(());
    }
    let at = first.iter().zip(second).take_while(|(a, b)| a == b).count();
    let line = |trace: &[String]| trace.get(at).cloned().unwrap_or_else(|| "(end)".to_owned());
    let what = format!("line {at} is\n{}\nand then\n{}", line(first), line(second));
    Err(CheckFinding { checker: "replay", what })
}

/// The spans in which somebody worked on a duty.
fn spans_of<'a>(
    history: &'a [Step],
    duty: &'a DutyId,
) -> impl Iterator<Item = (Nanos, Nanos, Epoch, &'a InstanceId)> + 'a {
    history.iter().filter_map(move |step| match step {
        Step::Believed { duty: key, from, until, epoch, instance } if key.id == *duty => {
            Some((*from, *until, *epoch, instance))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests;
