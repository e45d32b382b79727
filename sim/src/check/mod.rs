//! Checkers that judge a run. They do not depend on how the engine works.
//!
//! | checker | property |
//! |---|---|
//! | L1, L2, L3, C1, D1, B1 | `core::invariant` |
//! | skipped | no event takes effect before the one before it: none is skipped (R16) |
//! | held | after faults end every duty gets a holder in time, and keeps one |
//! | spread | at the end every member has its share by the roster, and none is idle |
//! | moves | only members above their share shed duties; no duty moves twice in the window |
//! | quiet | in a settled group nothing changes hands |
//! | work | no work begins while work on the same duty still runs; no engine spins |
//! | end | an ended engine has stopped all work; members asked to leave have left; none fails |
//! | deadline | no deadline is later than the end of the hold in the store |
//! | reset | a member that saw a reset starts no work beside an earlier holder |
//! | records | every recorded acquisition is followed by a record of its end |
//! | fence | no checkpoint is accepted under an epoch once a newer one was granted |
//! | replay | the same seed gives the same trace |
//!
//! Checks made during the run, which end it, are in `world/watch.rs`.

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

/// A property that was violated.
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

/// Record of a run, for the checkers.
#[derive(Debug, Default)]
pub struct Story {
    /// Grants, effects, checkpoints and beliefs.
    pub history: Vec<Step>,
    /// Duties that were shed for balance.
    pub moves: Vec<DutyMove>,
    /// Work that was started, asked to end, or cancelled.
    pub turns: Vec<WorkTurn>,
    /// Records about holds.
    pub notes: Vec<RecordNote>,
    /// Deadlines given to work.
    pub promises: Vec<Promise>,
    /// Beliefs under sessions that the store has lost.
    pub outlived: Vec<Outlived>,
    /// The members at each reset of the store.
    pub witnesses: Vec<Vec<InstanceId>>,
    /// Until when members leave alone the duties whose work ended by itself.
    pub rests: BTreeMap<DutyId, Nanos>,
    /// Findings made during the run.
    pub odd: Vec<CheckFinding>,
    /// State at the end of the run.
    pub last: Final,
}

impl Story {
    /// Whether the run can stop early because something is broken.
    pub fn is_broken(&self) -> bool {
        !self.odd.is_empty()
    }
}

/// State at the end of the run.
#[derive(Clone, Debug, Default)]
pub struct Final {
    /// The duties that should be held, by name.
    pub wanted: Vec<DutyId>,
    /// Instances that may act on each duty.
    pub held: Vec<(DutyId, InstanceId)>,
    /// The processes that exist.
    pub alive: Vec<InstanceId>,
    /// The holds under which work runs.
    pub running: Vec<(InstanceId, DutyId, Epoch)>,
    /// Duties that operators pinned.
    pub pins: BTreeMap<DutyId, Pin>,
    /// Instances that were asked to leave and are still members.
    pub going: Vec<InstanceId>,
    /// Members that may hold duties.
    pub members: Vec<RosterMember>,
}

/// Times by which a group must have reached a state, after faults have ended.
#[derive(Clone, Copy, Debug)]
pub struct CheckTimes {
    /// End of the faults.
    pub quiet: Nanos,
    /// From here on every duty is held.
    pub held: Nanos,
    /// From here on nothing moves.
    pub settled: Nanos,
    /// The end of the run.
    pub end: Nanos,
    /// Longest time that a handover may leave a duty without a holder.
    pub gap: Nanos,
}

impl CheckTimes {
    /// Computes the times of a run.
    pub fn of(scenario: &Scenario, story: &Story) -> Self {
        Self::after(scenario, story.rests.values().max().copied().unwrap_or(0))
    }

    /// Returns the times for one duty: it must be held when its own rest is over. Others may move
    /// as long as any duty rests, because all shares depend on each other.
    fn of_duty(self, scenario: &Scenario, story: &Story, duty: &DutyId) -> Self {
        let rest = story.rests.get(duty).copied().unwrap_or(0);
        Self { held: Self::after(scenario, rest).held, ..self }
    }

    fn after(scenario: &Scenario, rests_until: Nanos) -> Self {
        let tick = scenario.at_most(scenario.look_every);
        let ttl = scenario.at_most(scenario.ttl.get());
        // Joining, claiming and listing take some round trips.
        let trips = 20 * scenario.delay + 20_000_000;
        let once = ttl + 2 * tick + trips;
        // Only the resource notices what the store has lost; the duty is claimed again after that.
        let lossy = if scenario.is_lossy() { 2 * ttl } else { 0 };
        let held = scenario.quiet_from.max(rests_until) + once + lossy;
        let moves = scenario.at_most(scenario.window + scenario.drain) + 3 * tick + trips;
        let rollout = if scenario.revisions { scenario.at_most(scenario.rollout()) } else { 0 };
        let settled = held + moves + rollout;
        let (quiet, gap, end) = (scenario.quiet_from, 2 * tick + trips, settled + 2 * ttl);
        Self { quiet, held, settled, end, gap }
    }
}

/// Judges a run by all properties that apply to its kind of store.
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
    // Without room for all duties, it is undefined which ones wait.
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

/// Returns the invariants that apply. A lossy store repeats epochs and loses checkpoints, so there
/// only effects are judged. Beliefs may overlap in a lossy store, or with clocks beyond the margin.
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

/// Checks that no checkpoint is accepted under an epoch once a newer one was granted (R14).
fn commits_are_fenced(history: &[Step]) -> Result<(), invariant::Violation> {
    let mut newest = BTreeMap::new();
    for (at, step) in history.iter().enumerate() {
        match step {
            Step::Granted { duty, epoch, .. } => {
                newest.insert(duty, *epoch);
            }
            Step::Committed { duty, epoch, .. } if newest.get(duty).is_some_and(|n| epoch < n) => {
                let what =
                    format!("a checkpoint of {duty} is accepted under the old epoch {epoch}");
                return Err(invariant::Violation { rule: "fence", at, what });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks L1 on effects alone.
fn effects_of_one(history: &[Step]) -> Result<(), invariant::Violation> {
    let effects: Vec<Step> =
        history.iter().filter(|step| matches!(step, Step::Effect { .. })).cloned().collect();
    invariant::one_instance_per_epoch(&effects)
}

fn gone(last: &Final) -> Result<(), CheckFinding> {
    match last.going.first() {
        Some(id) => {
            let what = format!("{id} was asked to leave and is still a member");
            Err(CheckFinding { checker: "end", what })
        }
        None => Ok(()),
    }
}

/// Returns the members that run an engine, with their own status and the operators' orders.
pub fn roster_members(members: &[Member], group: &GroupConfig) -> Vec<RosterMember> {
    let planned = |member: &Member| {
        let mut planned = MemberStatus::read(&member.note)?.roster_member(member);
        group.adjust(&mut planned);
        Some(planned)
    };
    members.iter().filter_map(planned).collect()
}

/// Checks that the same seed gives the same trace.
pub fn same_trace(first: &[String], second: &[String]) -> Result<(), CheckFinding> {
    if first == second {
        return Ok(());
    }
    let at = first.iter().zip(second).take_while(|(a, b)| a == b).count();
    let line = |trace: &[String]| trace.get(at).cloned().unwrap_or_else(|| "(end)".to_owned());
    let what = format!("line {at} differs:\n{}\n{}", line(first), line(second));
    Err(CheckFinding { checker: "replay", what })
}

/// Returns the spans in which an instance believed that it may act on a duty.
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
