//! `cargo xtask bench bucket`: compares the buckets of a million entities with Node's, and a filter
//! of millions of lines with a Python script. Everything runs alternately on one core.

use std::fmt;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tenure_core::bucket::{Partition, Total, bucket};

use crate::measure::{JudgedRow, conclude, median};

const KEY: &str = "farosai/airbyte-github-source";
const TOTAL: u32 = 12;
/// Bucket that the filters keep.
const ID: &str = "3";
const ENTITIES: usize = 1_000_000;
const LINES: usize = 5_000_000;
/// Number of lines for Python, which is slower.
const PART: usize = 1_000_000;
const BUCKET_ROUNDS: usize = 7;

/// Required speed of a prepared key, as a multiple of Node's.
const NODE_BAR: f64 = 10.0;
/// Required lines per second of a filter, unless it is `PYTHON_BAR` times as fast as Python.
const LINES_BAR: f64 = 2e6;
const PYTHON_BAR: f64 = 10.0;

const HEADING: &str = "\
| what | a second | each | ratio | bar |
|---|---:|---:|---:|---|";

/// Row of the table.
struct BucketRow {
    what: String,
    /// Nanoseconds per entity.
    each: f64,
    /// Nanoseconds per entity of the program it is compared with.
    other: f64,
    bar: Option<Bar>,
}

struct Bar {
    text: String,
    met: bool,
}

impl BucketRow {
    fn rate(&self) -> f64 {
        1e9 / self.each
    }

    fn ratio(&self) -> f64 {
        self.other / self.each
    }
}

impl JudgedRow for BucketRow {
    fn is_met(&self) -> bool {
        self.bar.as_ref().is_none_or(|bar| bar.met)
    }
}

impl fmt::Display for BucketRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, ratio) = (self.rate() / 1e6, self.ratio());
        let bar = match &self.bar {
            None => "-".to_owned(),
            Some(Bar { text, met: true }) => format!("{text} met"),
            Some(Bar { text, met: false }) => format!("{text} **missed**"),
        };
        let Self { what, each, .. } = self;
        write!(f, "| {what} | {rate:.2} million | {each:.0} ns | {ratio:.1} | {bar} |")
    }
}

/// Runs both measurements, prints the table, and fails if a bar is missed.
pub fn run() -> Result<()> {
    one_core()?;
    let folder = TempDir::new()?;
    let mut rows = hashes(folder.path())?;
    rows.extend(filters(folder.path())?);
    conclude(HEADING, &rows)
}

/// Pins this thread and its future children to one core.
fn one_core() -> Result<()> {
    let process = std::process::id().to_string();
    printed(Command::new("taskset").args(["--cpu-list", "--pid", "0", &process]))?;
    Ok(())
}

fn entity(n: usize) -> String {
    format!("org-{}/repo-{n}", n % 1_000)
}

/// Writes this many entities to a file, one per line.
fn written(file: PathBuf, count: usize) -> Result<PathBuf> {
    let mut lines = BufWriter::new(File::create(&file)?);
    for n in 0..count {
        writeln!(lines, "{}", entity(n))?;
    }
    lines.flush()?;
    Ok(file)
}

/// Computes the same buckets alternately: Node, ours without and with a prepared key.
fn hashes(folder: &Path) -> Result<Vec<BucketRow>> {
    let entities: Vec<String> = (0..ENTITIES).map(entity).collect();
    let total = Total::new(TOTAL.into())?;
    let partition = Partition::new(KEY, total);
    let mut node = NodeProcess::start(folder)?;
    let mut times: [Vec<Duration>; 3] = Default::default();
    for round in 0..BUCKET_ROUNDS {
        let one_by_one = timed(&entities, |data| bucket(black_box(KEY), data, total));
        let prepared = timed(&entities, |data| partition.bucket(data));
        let rounds = [node.round()?, one_by_one, prepared];
        let (_, sum) = rounds[0];
        for ((time, ours), times) in rounds.into_iter().zip(&mut times) {
            ensure!(ours == sum, "the buckets differ: {ours} is not {sum}");
            times.push(time);
        }
        eprintln!(
            "buckets: round {} of {BUCKET_ROUNDS}: {:?}",
            round + 1,
            rounds.map(|round| round.0)
        );
    }
    let [other, one_by_one, prepared] = times.map(|times| each(times, ENTITIES));
    let row = |what: &str, each| BucketRow { what: what.to_owned(), each, other, bar: None };
    let mut prepared = row("`Partition::bucket`, the key prepared", prepared);
    let met = prepared.ratio() >= NODE_BAR;
    prepared.bar = Some(Bar { text: format!("{NODE_BAR} times Node"), met });
    let version = version("node")?;
    let node = row(&format!("Node {version}, `createHmac`"), other);
    Ok(vec![node, row("`bucket`, the key anew each time", one_by_one), prepared])
}

/// Returns the time to compute the buckets of all entities, and the sum of the buckets.
fn timed(entities: &[String], bucket: impl Fn(&str) -> u32) -> (Duration, u64) {
    let before = Instant::now();
    let sum = black_box(entities.iter().map(|data| u64::from(bucket(data))).sum());
    (before.elapsed(), sum)
}

/// Returns the median nanoseconds per entity.
fn each(times: Vec<Duration>, count: usize) -> f64 {
    median(times).as_secs_f64() * 1e9 / count as f64
}

/// Node process that computes the same buckets on request.
struct NodeProcess {
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl NodeProcess {
    fn start(folder: &Path) -> Result<Self> {
        let script = folder.join("hmac.js");
        fs::write(&script, include_str!("hmac.js"))?;
        let file = written(folder.join("entities"), ENTITIES)?;
        let mut process = Command::new("node")
            .args([&script, &file])
            .args([KEY, &TOTAL.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run node (package nodejs)")?;
        let ask = process.stdin.take().context("no standard input")?;
        let answers = BufReader::new(process.stdout.take().context("no standard output")?);
        let mut node = Self { process, ask, answers };
        ensure!(node.answer()? == "ready", "node did not become ready");
        Ok(node)
    }

    fn round(&mut self) -> Result<(Duration, u64)> {
        self.ask.write_all(b"\n")?;
        let answer = self.answer()?;
        let (nanos, sum) = answer.split_once(' ').context("unexpected output of node")?;
        Ok((Duration::from_nanos(nanos.parse()?), sum.parse()?))
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Runs our filter on all lines and a Python filter on a part of them, alternately.
fn filters(folder: &Path) -> Result<Vec<BucketRow>> {
    let all = written(folder.join("lines"), LINES)?;
    let part = written(folder.join("part"), PART)?;
    let script = folder.join("filter.py");
    fs::write(&script, include_str!("filter.py"))?;
    // `python3` may be a script that only locates Python.
    let python =
        printed(Command::new("python3").args(["-c", "import sys; print(sys.executable)"]))?;
    let total = TOTAL.to_string();
    // `cargo xtask bench bucket` has built it.
    let tenure = std::env::current_exe()?.with_file_name("tenure");
    let ours = || {
        let mut command = Command::new(&tenure);
        command.args(["bucket", "filter", "--key", KEY, "--id", ID, "--total", &total]);
        command
    };
    let theirs = || {
        let mut command = Command::new(&python);
        command.arg(&script).args([KEY, ID, &total]);
        command
    };
    let [kept, expected] = ["kept", "expected"].map(|name| folder.join(name));
    through(ours(), &part, &kept)?;
    through(theirs(), &part, &expected)?;
    let kept = fs::read(kept)?;
    ensure!(!kept.is_empty() && kept == fs::read(expected)?, "the filters keep different lines");
    let (mut times, mut python_times) = (Vec::new(), Vec::new());
    let nowhere = Path::new("/dev/null");
    for round in 1..=BUCKET_ROUNDS {
        let (time, python) = (through(ours(), &all, nowhere)?, through(theirs(), &part, nowhere)?);
        eprintln!(
            "filter: round {round} of {BUCKET_ROUNDS}: {time:?}; Python, on a part: {python:?}"
        );
        times.push(time);
        python_times.push(python);
    }
    let (ours, other) = (each(times, LINES), each(python_times, PART));
    let what = format!("Python {}, `hmac.digest`, line by line", version(&python)?);
    let python = BucketRow { what, each: other, other, bar: None };
    let what = "`tenure bucket filter`".to_owned();
    let mut ours = BucketRow { what, each: ours, other, bar: None };
    let met = ours.rate() >= LINES_BAR || ours.ratio() >= PYTHON_BAR;
    let text = format!("{} million lines a second or {PYTHON_BAR} times Python", LINES_BAR / 1e6);
    ours.bar = Some(Bar { text, met });
    Ok(vec![python, ours])
}

/// Returns the run time of a filter, from its start to its end.
fn through(mut filter: Command, from: &Path, to: &Path) -> Result<Duration> {
    filter.stdin(File::open(from)?).stdout(File::create(to)?);
    let before = Instant::now();
    let status = filter.status().with_context(|| format!("cannot run {filter:?}"))?;
    let time = before.elapsed();
    ensure!(status.success(), "{filter:?} ended with {status}");
    Ok(time)
}

/// Returns the version of a program, from `--version`.
fn version(program: &str) -> Result<String> {
    let told = printed(Command::new(program).arg("--version"))?;
    Ok(told.trim_start_matches("Python ").trim_start_matches('v').to_owned())
}

fn printed(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(done.status.success(), "{command:?} ended with {}", done.status);
    Ok(String::from_utf8(done.stdout)?.trim().to_owned())
}
