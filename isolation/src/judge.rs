//! Verdict on a schedule: it must be one of the serial orders, or refused without effect.

use anyhow::Result;

use crate::bench::{Alone, Bench, PairOutcome, Played, Standstill, ended};
use crate::contract;
use crate::operations::{Answer, Kind, TestedOperation};
use crate::server::Side;
use crate::stop::{Stop, release};

/// Part of the refusal of an operation that has waited for a lock too long.
const LOCK_TIMEOUT: &str = "lock timeout";
/// Part of a refusal for the isolation level.
const SERIALIZATION_FAILURE: &str = "could not serialize access";
/// Errors that are due to a level above read committed.
const LEVEL_REFUSALS: &[&str] = &[SERIALIZATION_FAILURE, "has to be read committed"];
/// Errors of an effect at its own level: it may also be ended by the claim of its duty.
const EFFECT_REFUSALS: &[&str] = &[SERIALIZATION_FAILURE, "terminating connection"];

/// Rows as of a claim that granted nothing, for duties that were forgotten: they can be locked.
const PLACEHOLDERS: &str =
    "INSERT INTO tenure.hold (group_name, duty, epoch, instance, nonce, held)
    SELECT group_name, duty, 0, '', '00000000-0000-4000-8000-000000000000', false FROM saved.hold
    ON CONFLICT DO NOTHING";

/// Outcomes of both serial orders of a pair, at one level.
#[derive(Clone, Debug)]
pub(crate) struct Serial {
    /// The hour of all of them.
    pub(crate) hour: i64,
    ab: PairOutcome,
    ba: PairOutcome,
    /// If only B is late: A and then B, both late.
    late_ab: Option<PairOutcome>,
    /// If only one of them is late: the other alone, also late.
    late_alone: Option<Alone>,
}

/// Verdict on one schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScheduleVerdict {
    /// As in a serial order.
    Serial,
    /// At least one operation was refused and changed nothing.
    Refused,
    /// Allowed: an operation lost against the other one.
    Lost,
    /// Allowed: an operation skipped a locked row.
    Skipped,
    /// Not allowed: lines that say why.
    Found(Vec<String>),
    /// An answer that no schedule may have.
    Never(String),
    /// It says nothing, for this reason.
    Unusable(&'static str),
}

impl Serial {
    pub(crate) async fn of(
        bench: &Bench,
        a: &TestedOperation,
        b: &TestedOperation,
    ) -> Result<Self> {
        loop {
            let hour = bench.hour();
            let is_late = [a.kind == Kind::Late, b.kind == Kind::Late];
            let ab = bench.serial(a, b, true, is_late[0]).await?;
            let ba = bench.serial(a, b, false, is_late[0]).await?;
            let late_ab = match is_late {
                [false, true] => Some(bench.serial(a, b, true, true).await?),
                _ => None,
            };
            let late_alone = match is_late {
                [false, true] => Some(bench.alone(a, Side::A, true).await?),
                [true, false] => Some(bench.alone(b, Side::B, true).await?),
                _ => None,
            };
            if bench.hour() == hour {
                return Ok(Self { hour, ab, ba, late_ab, late_alone });
            }
        }
    }
}

/// Judges a schedule; `alone` are the two operations without each other.
pub(crate) async fn judge(
    bench: &Bench,
    [a, b]: [&TestedOperation; 2],
    played: &Played,
    serial: &Serial,
    alone: [&Alone; 2],
) -> Result<ScheduleVerdict> {
    let outcome = &played.outcome;
    let is_partial = [is_partial(bench, a, &outcome.a), is_partial(bench, b, &outcome.b)];
    if let Some(line) = never(outcome, is_partial) {
        return Ok(ScheduleVerdict::Never(line));
    }
    let is_timeout =
        |it: &Answer| matches!(it, Answer::Refused(text) if text.contains(LOCK_TIMEOUT));
    if is_timeout(&outcome.a) || is_timeout(&outcome.b) {
        return Ok(ScheduleVerdict::Unusable("lock timeout"));
    }
    let is_done = played.b == Standstill::Answered && matches!(outcome.b, Answer::Done(_));
    let is_final = is_done && contract::is_final(b, a);
    let is_as = |order: &PairOutcome| {
        outcome.state == order.state
            && (is_partial[0] || contract::is_same(a, b, &outcome.a, &order.a))
            && (is_partial[1] || contract::is_same(b, a, &outcome.b, &order.b))
    };
    let is_ab = is_as(&serial.ab) || serial.late_ab.as_ref().is_some_and(is_as);
    if is_as(&serial.ba) || (is_ab && !is_final) {
        return Ok(match is_partial.contains(&true) {
            true => ScheduleVerdict::Refused,
            false => ScheduleVerdict::Serial,
        });
    }
    let both = alone;
    let [a_alone, b_alone] = both;
    let late = serial.late_alone.as_ref();
    let alone = match (a.kind, late) {
        // The clock is ahead before B begins.
        (Kind::Late, Some(b_late)) => [vec![a_alone], vec![b_late]],
        (_, late) => [late.into_iter().chain([a_alone]).collect(), vec![b_alone]],
    };
    if let Some(verdict) = without_effect(bench, [a, b], outcome, &alone)? {
        return Ok(verdict);
    }
    // Each transaction of these changes one table.
    let is_by_table = |operation: &TestedOperation| operation.name.starts_with("prune");
    let is_part = |order: &PairOutcome, other: &Alone| {
        let same_a = is_partial[0] || contract::is_same(a, b, &outcome.a, &order.a);
        let same_b = is_partial[1] || contract::is_same(b, a, &outcome.b, &order.b);
        same_a && same_b && outcome.state.is_between(&order.state, &other.state)
    };
    let [a_alone, b_alone] = both;
    let is_part_of = |order| {
        (is_partial[0] && is_by_table(a) && is_part(order, b_alone))
            || (is_partial[1] && is_by_table(b) && is_part(order, a_alone))
    };
    if is_part_of(&serial.ba) || (is_part_of(&serial.ab) && !is_final) {
        return Ok(ScheduleVerdict::Refused);
    }
    if bench.level.may_refuse() && is_skipped_alone(bench, [a, b], outcome).await? {
        return Ok(ScheduleVerdict::Skipped);
    }
    if is_skipped(bench, [a, b], outcome, is_final).await? {
        return Ok(ScheduleVerdict::Skipped);
    }
    Ok(ScheduleVerdict::Found(explain([a, b], outcome, serial, is_ab)))
}

/// Returns what differs from the serial orders, or that A took effect after B if it `is_ab`.
fn explain(
    [a, b]: [&TestedOperation; 2],
    outcome: &PairOutcome,
    serial: &Serial,
    is_ab: bool,
) -> Vec<String> {
    let mut lines = said(a, b, outcome);
    if is_ab {
        lines.push(format!(
            "{} was answered while {} was stopped, and {} took effect after that",
            b.name, a.name, a.name
        ));
        return lines;
    }
    for (first, second, order) in [(a, b, &serial.ab), (b, a, &serial.ba)] {
        lines.push(format!("not as {}, then {}:", first.name, second.name));
        lines.extend(said(a, b, order).into_iter().map(|line| format!("  {line}")));
        let differences = order.state.differences(&outcome.state);
        lines.extend(differences.into_iter().map(|line| format!("  {line}")));
    }
    lines
}

/// Whether one of several transactions was refused for its level: those before it have happened, so
/// the outcome of the operation is unknown.
fn is_partial(bench: &Bench, operation: &TestedOperation, answer: &Answer) -> bool {
    let is_steps = operation.kind == Kind::Steps && bench.level.may_refuse();
    is_steps && matches!(answer, Answer::Unknown(text) if text.contains(SERIALIZATION_FAILURE))
}

/// Answers that no schedule may have.
fn never(outcome: &PairOutcome, is_partial: [bool; 2]) -> Option<String> {
    let answers = [&outcome.a, &outcome.b].into_iter().zip(is_partial);
    answers.into_iter().find_map(|(answer, is_partial)| match answer {
        Answer::Unknown(text) if !is_partial => Some(format!("the outcome is unknown: {text}")),
        Answer::Refused(text) if text.contains("deadlock detected") => Some(text.clone()),
        _ => None,
    })
}

fn said(a: &TestedOperation, b: &TestedOperation, outcome: &PairOutcome) -> Vec<String> {
    vec![
        format!("{} answered {:?}", a.name, outcome.a),
        format!("{} answered {:?}", b.name, outcome.b),
    ]
}

/// Whether the level explains that an operation was refused.
fn is_refused(bench: &Bench, operation: &TestedOperation, answer: &Answer) -> bool {
    let Answer::Refused(text) = answer else { return false };
    let is_one_of = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    (bench.level.may_refuse() && is_one_of(LEVEL_REFUSALS))
        || (operation.kind == Kind::Effect && is_one_of(EFFECT_REFUSALS))
}

/// Whether one or both were refused or lost, and everything else is as if they had not run.
fn without_effect(
    bench: &Bench,
    [a, b]: [&TestedOperation; 2],
    outcome: &PairOutcome,
    [a_alone, b_alone]: &[Vec<&Alone>; 2],
) -> Result<Option<ScheduleVerdict>> {
    let refused = [is_refused(bench, a, &outcome.a), is_refused(bench, b, &outcome.b)];
    let lost = [contract::has_lost(a, b, &outcome.a), contract::has_lost(b, a, &outcome.b)];
    let is_alone = |answer: &Answer, alone: &[&Alone]| {
        alone.iter().any(|it| *answer == it.answer && outcome.state == it.state)
    };
    let (no_a, no_b) = (refused[0] || lost[0], refused[1] || lost[1]);
    let is_any_refused = refused.contains(&true);
    let is_explained =
        (no_a && no_b && is_any_refused && outcome.state == bench.prepared(a.part)?)
            || (no_a && is_alone(&outcome.b, b_alone))
            || (no_b && is_alone(&outcome.a, a_alone));
    Ok(is_explained.then_some(match is_any_refused {
        true => ScheduleVerdict::Refused,
        false => ScheduleVerdict::Lost,
    }))
}

/// Whether an order explains the outcome in which one operation finds a row locked that it skips.
/// If B is final, only orders in which it comes first.
async fn is_skipped(
    bench: &Bench,
    pair: [&TestedOperation; 2],
    outcome: &PairOutcome,
    is_final: bool,
) -> Result<bool> {
    for (skipping, side) in pair.into_iter().zip([Side::A, Side::B]) {
        for is_first in [true, false] {
            let is_b_first = is_first == (side == Side::B);
            if contract::skips(skipping).is_empty() || (is_final && !is_b_first) {
                continue;
            }
            for rows in locked(bench, pair, side, is_first).await? {
                if *outcome == with_locked(bench, pair, side, is_first, &rows).await? {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Whether one operation was refused, and the other one is as alone, but found a row locked.
async fn is_skipped_alone(
    bench: &Bench,
    pair: [&TestedOperation; 2],
    outcome: &PairOutcome,
) -> Result<bool> {
    for (skipping, side) in pair.into_iter().zip([Side::A, Side::B]) {
        let (said, is_other_refused) = match side {
            Side::A => (&outcome.a, is_refused(bench, pair[1], &outcome.b)),
            Side::B => (&outcome.b, is_refused(bench, pair[0], &outcome.a)),
        };
        if contract::skips(skipping).is_empty() || !is_other_refused {
            continue;
        }
        for rows in locked(bench, pair, side, true).await? {
            let answer = run_with_locked(bench, skipping, side, &rows).await?;
            if bench.take(skipping.part).await? == outcome.state && answer == *said {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns the rows that may be locked when one side runs, of those that it skips: each, and all.
async fn locked(
    bench: &Bench,
    [a, b]: [&TestedOperation; 2],
    skipping: Side,
    is_first: bool,
) -> Result<Vec<Vec<Stop>>> {
    let (skipper, other) = if skipping == Side::A { (a, b) } else { (b, a) };
    if !is_first {
        bench.run(other, skipping.other()).await?;
        bench.watcher.batch_execute(PLACEHOLDERS).await?;
    }
    let tables = contract::skips(skipper);
    let mut rows = Vec::new();
    for table in bench.tables.iter().filter(|table| tables.contains(&table.name.as_str())) {
        let sql = format!("SELECT {} FROM tenure.{} x", table.label(), table.name);
        for row in bench.watcher.query(&sql, &[]).await? {
            rows.push(Stop::Row { table: table.name.clone(), label: row.get(0) });
        }
    }
    bench.take(a.part).await?;
    let mut sets: Vec<Vec<Stop>> = rows.iter().map(|row| vec![row.clone()]).collect();
    sets.push(rows);
    Ok(sets)
}

/// Runs both in order; while the skipping one runs, rows are locked.
async fn with_locked(
    bench: &Bench,
    [a, b]: [&TestedOperation; 2],
    skipping: Side,
    is_first: bool,
    rows: &[Stop],
) -> Result<PairOutcome> {
    let (skipper, other) = if skipping == Side::A { (a, b) } else { (b, a) };
    let other_side = skipping.other();
    let mut other_said = None;
    if !is_first {
        other_said = Some(bench.run(other, other_side).await?);
        bench.watcher.batch_execute(PLACEHOLDERS).await?;
    }
    let said = run_with_locked(bench, skipper, skipping, rows).await?;
    let other_said = match other_said {
        Some(said) => said,
        None => bench.run(other, other_side).await?,
    };
    let state = bench.take(a.part).await?;
    let (a, b) = if skipping == Side::A { (said, other_said) } else { (other_said, said) };
    Ok(PairOutcome { a, b, state })
}

/// Runs an operation while rows are locked.
async fn run_with_locked(
    bench: &Bench,
    operation: &TestedOperation,
    side: Side,
    rows: &[Stop],
) -> Result<Answer> {
    bench.blocker.batch_execute("BEGIN").await?;
    for row in rows {
        row.lock(&bench.blocker, &bench.tables).await?;
    }
    let running = bench.start(operation, side).await?;
    // It may still wait for a lock that it does not skip: then the rows are released.
    bench.until_still(&running, operation, side).await?;
    release(&bench.blocker).await?;
    ended(running, operation).await
}
