//! Alternating measurements, and their results.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Heading of the table.
pub const HEADING: &str = "\
| store | operation | holds | raw median | Tenure median | ratio | bar |
|---|---|---:|---:|---:|---:|---:|";

/// Row of the table.
pub struct OperationRow {
    pub store: &'static str,
    pub operation: &'static str,
    pub holds: usize,
    pub raw: Duration,
    pub ours: Duration,
    /// Largest allowed ratio.
    pub bar: Option<f64>,
}

impl OperationRow {
    fn ratio(&self) -> f64 {
        self.ours.as_secs_f64() / self.raw.as_secs_f64()
    }
}

impl JudgedRow for OperationRow {
    fn is_met(&self) -> bool {
        self.bar.is_none_or(|bar| self.ratio() <= bar)
    }
}

/// Row of a table, with a bar or without.
pub trait JudgedRow: fmt::Display {
    /// Whether it has no bar, or meets it.
    fn is_met(&self) -> bool;
}

/// Prints a table, and fails if a bar is missed.
pub fn conclude<R: JudgedRow>(heading: &str, rows: &[R]) -> Result<()> {
    println!("{heading}");
    for row in rows {
        println!("{row}");
    }
    match rows.iter().filter(|row| !row.is_met()).count() {
        0 => Ok(()),
        missed => bail!("{missed} bars are missed"),
    }
}

impl fmt::Display for OperationRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, operation, holds, raw, ours, bar } = self;
        let bar = match (bar, self.is_met()) {
            (None, _) => "-".to_owned(),
            (Some(bar), true) => format!("{bar} met"),
            (Some(bar), false) => format!("{bar} **missed**"),
        };
        let (raw, ours) = (raw.as_secs_f64() * 1e3, ours.as_secs_f64() * 1e3);
        let ratio = self.ratio();
        write!(
            f,
            "| {store} | {operation} | {holds} | {raw:.3} ms | {ours:.3} ms | {ratio:.2} | {bar} |"
        )
    }
}

/// Repetitions of a keep-alive, for any number of holds.
pub const KEEP_ALIVES: usize = 120;

/// Returns the repetitions of another operation on this many holds.
pub fn rounds(holds: usize) -> usize {
    match holds {
        0..=1 => 400,
        2..=100 => 120,
        _ => 25,
    }
}

pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

pub async fn timed<T>(call: impl Future<Output = Result<T>>) -> Result<(Duration, T)> {
    let before = Instant::now();
    let answer = call.await?;
    Ok((before.elapsed(), answer))
}

/// Times of the raw statement and ours alternately, for claim, keep-alive and commit; then of our
/// first keep-alive after a claim.
pub type OperationTimes = [Vec<Duration>; 7];

/// Returns the four rows of one store and size. The bars: a keep-alive at most `keep_bar` times the
/// raw one, and one commit at most 1.5 times a plain fenced `UPDATE` on the SQL stores.
pub fn table(
    store: &'static str,
    holds: usize,
    times: OperationTimes,
    keep_bar: f64,
) -> Vec<OperationRow> {
    let [claim, our_claim, keep, our_keep, commit, our_commit, our_first] = times.map(median);
    let row = |operation, raw, ours, bar| OperationRow { store, operation, holds, raw, ours, bar };
    let commit_bar = (holds == 1 && store != "redis").then_some(1.5);
    vec![
        row("claim", claim, our_claim, None),
        row("first keep-alive after a claim", keep, our_first, None),
        row("keep-alive", keep, our_keep, Some(keep_bar)),
        row("commit", commit, our_commit, commit_bar),
    ]
}
