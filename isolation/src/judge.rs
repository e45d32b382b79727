//! Verdict on a schedule: it must be one of the serial orders, or refused without effect.

use anyhow::Result;

use crate::bench::{Alone, Bench, PairOutcome, Played};
use crate::contract;
use crate::operations::{Answer, TestedOperation};
use crate::server::Side;
use crate::stop::{Stop, release};

/// Part of the refusal of an operation that has waited for a lock too long.
const LOCK_TIMEOUT: &str = "lock timeout";

/// Outcomes of both serial orders of a pair, at one level.
#[derive(Clone, Debug)]
pub(crate) struct Serial {
    ab: PairOutcome,
    ba: PairOutcome,
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
}

impl Serial {
    pub(crate) async fn of(
        bench: &Bench,
        a: &TestedOperation,
        b: &TestedOperation,
    ) -> Result<Self> {
        let (ab, ba) = (bench.serial(a, b, true).await?, bench.serial(a, b, false).await?);
        Ok(Self { ab, ba })
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
    let Played { outcome, b_waited } = played;
    if let Some(line) = never(outcome) {
        return Ok(ScheduleVerdict::Found(vec![line]));
    }
    let is_done = !b_waited && matches!(outcome.b, Answer::Done(_));
    let is_final = is_done && contract::is_final(b, a);
    let is_as = |order: &PairOutcome| {
        outcome.state == order.state
            && (contract::counts(a, &outcome.a) || outcome.a == order.a)
            && (contract::counts(b, &outcome.b) || outcome.b == order.b)
    };
    if is_as(&serial.ba) || (is_as(&serial.ab) && !is_final) {
        return Ok(ScheduleVerdict::Serial);
    }
    if is_refused(bench, outcome, a, alone)? {
        return Ok(ScheduleVerdict::Refused);
    }
    if is_lost([a, b], outcome, alone) {
        return Ok(ScheduleVerdict::Lost);
    }
    if is_skipped(bench, [a, b], outcome).await? {
        return Ok(ScheduleVerdict::Skipped);
    }
    let mut lines = said(a, b, outcome);
    if is_as(&serial.ab) {
        lines.push(format!(
            "{} was answered while {} was stopped, and {} took effect after that",
            b.name, a.name, a.name
        ));
        return Ok(ScheduleVerdict::Found(lines));
    }
    for (first, second, order) in [(a, b, &serial.ab), (b, a, &serial.ba)] {
        lines.push(format!("not as {}, then {}:", first.name, second.name));
        lines.extend(said(a, b, order).into_iter().map(|line| format!("  {line}")));
        let differences = order.state.differences(&outcome.state);
        lines.extend(differences.into_iter().map(|line| format!("  {line}")));
    }
    Ok(ScheduleVerdict::Found(lines))
}

/// Answers that no schedule may have.
fn never(outcome: &PairOutcome) -> Option<String> {
    [&outcome.a, &outcome.b].into_iter().find_map(|answer| match answer {
        Answer::Unknown(text) => Some(format!("the outcome is unknown: {text}")),
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

/// Whether the refused operations changed nothing, and the other one did as it does alone.
fn is_refused(
    bench: &Bench,
    outcome: &PairOutcome,
    a: &TestedOperation,
    [a_alone, b_alone]: [&Alone; 2],
) -> Result<bool> {
    let is_raw = bench.level.may_refuse();
    let is_refused = |answer: &Answer| match answer {
        Answer::Refused(text) => is_raw || text.contains(LOCK_TIMEOUT),
        _ => false,
    };
    Ok(match (is_refused(&outcome.a), is_refused(&outcome.b)) {
        (false, false) => false,
        (true, true) => outcome.state == bench.prepared(a.part)?,
        (true, false) => outcome.b == b_alone.answer && outcome.state == b_alone.state,
        (false, true) => outcome.a == a_alone.answer && outcome.state == a_alone.state,
    })
}

/// Whether one operation answers that it lost, and everything else is as if it had not run.
fn is_lost(
    [a, b]: [&TestedOperation; 2],
    outcome: &PairOutcome,
    [a_alone, b_alone]: [&Alone; 2],
) -> bool {
    let is_alone =
        |answer: &Answer, alone: &Alone| *answer == alone.answer && outcome.state == alone.state;
    (contract::has_lost(a, &outcome.a) && is_alone(&outcome.b, b_alone))
        || (contract::has_lost(b, &outcome.b) && is_alone(&outcome.a, a_alone))
}

/// Whether an order explains the outcome in which one operation finds a row locked that it skips.
async fn is_skipped(
    bench: &Bench,
    pair: [&TestedOperation; 2],
    outcome: &PairOutcome,
) -> Result<bool> {
    for (skipping, side) in pair.into_iter().zip([Side::A, Side::B]) {
        if !contract::skips(skipping) {
            continue;
        }
        for is_first in [true, false] {
            for rows in locked(bench, pair, side, is_first).await? {
                if *outcome == with_locked(bench, pair, side, is_first, &rows).await? {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Returns the rows that may be locked when one side runs: each, and all.
async fn locked(
    bench: &Bench,
    [a, b]: [&TestedOperation; 2],
    skipping: Side,
    is_first: bool,
) -> Result<Vec<Vec<Stop>>> {
    let (other, other_side) = if skipping == Side::A { (b, Side::B) } else { (a, Side::A) };
    if !is_first {
        bench.run(other, other_side).await?;
    }
    let mut rows = Vec::new();
    for table in bench.tables.iter().filter(|table| a.part.has(&table.name)) {
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
    let (other, other_side) = if skipping == Side::A { (b, Side::B) } else { (a, Side::A) };
    let skipper = if skipping == Side::A { a } else { b };
    let mut other_said = None;
    if !is_first {
        other_said = Some(bench.run(other, other_side).await?);
    }
    bench.blocker.batch_execute("BEGIN").await?;
    for row in rows {
        row.lock(&bench.blocker, &bench.tables).await?;
    }
    let running = bench.start(skipper, skipping);
    // It may still wait for a lock that it does not skip: then the rows are released.
    bench.until_still(&running, skipper, skipping).await?;
    release(&bench.blocker).await?;
    let said = crate::bench::ended(running, skipper).await?;
    let other_said = match other_said {
        Some(said) => said,
        None => bench.run(other, other_side).await?,
    };
    let state = bench.take(a.part).await?;
    let (a, b) = if skipping == Side::A { (said, other_said) } else { (other_said, said) };
    Ok(PairOutcome { a, b, state })
}
