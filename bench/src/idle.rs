//! `cargo xtask bench idle`: processor time of `tenure run` while its command sleeps, of its guard,
//! and of a standby, from `/proc`.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinSet;

use crate::failover::{STORES, url};
use crate::measure::{JudgedRow, conclude};

/// Time between the start of the processes and the measurement.
const WARM_UP: Duration = Duration::from_secs(20);
/// A clock tick, in which the kernel counts, is 0.01 % of it.
const MEASURED: Duration = Duration::from_secs(100);
/// Ticks per second of the counters in `/proc`, the same on all common systems.
const TICKS: f64 = 100.0;
/// Limit of the share of a core, in per cent.
const BAR: f64 = 0.1;
const START_TIMEOUT: Duration = Duration::from_secs(30);

const HEADING: &str = "\
| store | holder | its guard | standby | its guard | bar |
|---|---:|---:|---:|---:|---|";

/// Shares of a core in per cent: holder, its guard, standby, its guard.
struct IdleRow {
    store: &'static str,
    shares: Vec<f64>,
}

impl JudgedRow for IdleRow {
    fn is_met(&self) -> bool {
        self.shares.iter().all(|share| *share < BAR)
    }
}

impl fmt::Display for IdleRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} ", self.store)?;
        for at in 0..4 {
            match self.shares.get(at) {
                Some(share) => write!(f, "| {share:.2} % ")?,
                None => write!(f, "| - ")?,
            }
        }
        write!(f, "| {BAR} % {} |", if self.is_met() { "met" } else { "**missed**" })
    }
}

/// Measures the named stores, or all, at the same time; prints the table, and fails if a bar is
/// missed.
pub async fn run(is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut measured = JoinSet::new();
    // The cursor file has one process.
    for store in ["file"].into_iter().chain(STORES).filter(|store| is_wanted(store)) {
        let url = match store {
            "file" => format!("file:{}", folder.path().join("cursor.json").display()),
            _ => url(store, &folder)?,
        };
        measured.spawn(async move { idle(store, &url).await });
    }
    let mut rows = Vec::new();
    while let Some(row) = measured.join_next().await {
        rows.push(row??);
    }
    rows.sort_by_key(|row| ["file"].iter().chain(&STORES).position(|store| *store == row.store));
    conclude(HEADING, &rows)
}

async fn idle(store: &'static str, url: &str) -> Result<IdleRow> {
    let folder = tempfile::tempdir()?;
    let mut members = vec![Supervised::start(url, &folder, "acquired").await?];
    if store != "file" {
        members.push(Supervised::start(url, &folder, "standby").await?);
    }
    tokio::time::sleep(WARM_UP).await;
    let mut pids = Vec::new();
    for member in &members {
        let pid = member.child.id().context("tenure run has ended")?;
        pids.extend([pid, guard_of(pid)?]);
    }
    let ticks = || pids.iter().map(|pid| ticks_of(*pid)).collect::<Result<Vec<_>>>();
    let before = ticks()?;
    tokio::time::sleep(MEASURED).await;
    let share = |(after, before): (u64, u64)| {
        (after - before) as f64 / TICKS / MEASURED.as_secs_f64() * 100.0
    };
    let shares = ticks()?.into_iter().zip(before).map(share).collect();
    Ok(IdleRow { store, shares })
}

/// `tenure run` with a command that sleeps.
struct Supervised {
    child: Child,
    /// Its log, which stays open.
    _log: Lines<BufReader<ChildStderr>>,
}

impl Supervised {
    /// Starts it, and waits for an event in its log.
    async fn start(url: &str, folder: &TempDir, event: &str) -> Result<Self> {
        let binary = std::env::current_exe()?.with_file_name("tenure");
        ensure!(binary.exists(), "{} is not built", binary.display());
        let mut command = Command::new(binary);
        command.args(["run", "--store", url, "--log", "json", "--duty", "idle/one"]);
        command.args(["--", "sleep", "1000"]).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let mut log = BufReader::new(child.stderr.take().context("no log")?).lines();
        let event = format!("\"event\":\"{event}\"");
        let logged = async {
            while let Some(line) = log.next_line().await? {
                if line.contains(&event) {
                    return Ok(());
                }
            }
            bail!("tenure run has ended without {event}")
        };
        tokio::time::timeout(START_TIMEOUT, logged).await.context("not started in time")??;
        Ok(Self { child, _log: log })
    }
}

/// Returns the guard, the only child of `tenure run`.
fn guard_of(pid: u32) -> Result<u32> {
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = std::fs::read_to_string(task?.path().join("children"))?;
        if let Some(child) = children.split_whitespace().next() {
            return Ok(child.parse()?);
        }
    }
    bail!("process {pid} has no guard")
}

/// Returns the processor time of a process and its threads so far, in the kernel and outside.
fn ticks_of(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may contain anything; the times are the 12th and 13th after it.
    let (_, after) = stat.rsplit_once(')').context("an unexpected form of /proc/PID/stat")?;
    let times = after.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    times.map(|time| time.context("no processor time")).sum()
}
