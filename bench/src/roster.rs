//! `cargo xtask bench roster`: time to plan many duties on one core.

use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tenure_core::roster::{Pin, Plan, RosterDuty, RosterMember, plan};
use tenure_core::{DutyId, InstanceId, Label};

use crate::measure::{JudgedRow, conclude};

const DUTIES: usize = 1_000_000;
const MEMBERS: usize = 100;
/// Repetitions of each plan.
const PLAN_ROUNDS: usize = 7;

const HEADING: &str = "\
| plan | duties | members | new holder | median | worst | bar |
|---|---:|---:|---:|---:|---:|---:|";

/// Row of the table.
struct PlanRow {
    plan: &'static str,
    members: usize,
    /// Duties that get a new holder.
    moved: usize,
    median: Duration,
    worst: Duration,
    bar: Duration,
}

impl JudgedRow for PlanRow {
    /// The worst round counts: a member plans once and then acts.
    fn is_met(&self) -> bool {
        self.worst <= self.bar
    }
}

impl fmt::Display for PlanRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, members, moved, median, worst, bar } = self;
        let met = if self.is_met() { "met" } else { "**missed**" };
        let [median, worst, bar] = [median, worst, bar].map(Duration::as_secs_f64);
        write!(f, "| {plan} | {DUTIES} | {members} | {moved} | ")?;
        write!(f, "{median:.3} s | {worst:.3} s | {bar} s {met} |")
    }
}

/// Plans, prints the table, and fails if a bar is missed.
pub fn run() -> Result<()> {
    let mut all = make_members()?;
    let mut duties = make_duties()?;
    let (two, half) = (Duration::from_secs(2), Duration::from_millis(500));
    let (first, row) = measure("from nothing", &duties, &all[..MEMBERS], two)?;
    let mut rows = vec![row];
    hold(&mut duties, &first);
    let (_, row) = measure("again, nothing new", &duties, &all[..MEMBERS], half)?;
    rows.push(row);
    let (_, row) = measure("after a join", &duties, &all, half)?;
    rows.push(row);
    // The last member leaves, so its duties have no holder.
    let (_, row) = measure("after a leave", &duties, &all[..MEMBERS - 1], half)?;
    rows.push(row);
    dress(&mut duties, &mut all)?;
    let (_, row) = measure("after pins, zones and weights", &duties, &all, two)?;
    rows.push(row);
    duties.iter_mut().for_each(|duty| duty.holder = None);
    let (first, row) = measure("from nothing with them", &duties, &all[..MEMBERS], two)?;
    rows.push(row);
    hold(&mut duties, &first);
    let (_, row) = measure("after a join with them", &duties, &all, half)?;
    rows.push(row);
    conclude(HEADING, &rows)
}

fn measure(
    name: &'static str,
    duties: &[RosterDuty],
    members: &[RosterMember],
    bar: Duration,
) -> Result<(Plan, PlanRow)> {
    let mut times = Vec::new();
    let mut made = Plan::default();
    for _ in 0..PLAN_ROUNDS {
        let before = Instant::now();
        made = black_box(plan(black_box(duties), black_box(members)));
        times.push(before.elapsed());
    }
    ensure!(made.holders.iter().all(Option::is_some), "{name}: some duties are not planned");
    times.sort_unstable();
    let differs = |(duty, member): &(&RosterDuty, &Option<u32>)| duty.holder != **member;
    let moved = duties.iter().zip(&made.holders).filter(differs).count();
    let (median, worst) = (times[PLAN_ROUNDS / 2], times[PLAN_ROUNDS - 1]);
    Ok((made, PlanRow { plan: name, members: members.len(), moved, median, worst, bar }))
}

fn hold(duties: &mut [RosterDuty], plan: &Plan) {
    for (duty, member) in duties.iter_mut().zip(&plan.holders) {
        duty.holder = *member;
    }
}

/// Sets weights of one to four, four zones, a zone for every duty, and a pin for every tenth.
fn dress(duties: &mut [RosterDuty], members: &mut [RosterMember]) -> Result<()> {
    let zones = ["a", "b", "c", "d"].map(Label::new);
    let zones: Vec<Label> = zones.into_iter().collect::<Result<_, _>>()?;
    for (n, member) in (0..).zip(&mut *members) {
        member.weight = 1 + n as u32 % 4;
        member.zone = Some(zones[n / 7 % 4].clone());
    }
    for (n, duty) in duties.iter_mut().enumerate() {
        duty.zone = Some(zones[n / 3 % 4].clone());
        duty.pin = (n % 10 == 0).then(|| match n / 10 % 2 {
            0 => Pin::Instance(members[n / 20 % MEMBERS].instance.clone()),
            _ => Pin::Zone(zones[n / 20 % 4].clone()),
        });
    }
    Ok(())
}

fn make_duties() -> Result<Vec<RosterDuty>> {
    let duty = |n| DutyId::new(format!("shard-{n:07}"));
    let make = |n| Ok(RosterDuty { duty: duty(n)?, holder: None, zone: None, pin: None });
    (0..DUTIES).map(make).collect()
}

/// Returns one member more than planned at first, for the join.
fn make_members() -> Result<Vec<RosterMember>> {
    let make = |n| {
        let instance = InstanceId::new(format!("api-{n:03}-1736598400000000000-a1b2c3d4"))?;
        let room = usize::MAX;
        Ok(RosterMember {
            instance,
            weight: 1,
            room,
            takes: true,
            keeps: true,
            zone: None,
            name: None,
        })
    };
    (0..=MEMBERS).map(make).collect()
}
