//! `tenure bucket plan`: how many of the entities fall in each bucket.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;

use serde_json::{Value, json};
use tenure_core::StoreError;
use tenure_core::bucket::{Partition, Total, short};
use tenure_core::text::counted;

use super::lines::{Lines, each, entity, unreadable};
use super::{Task, total};
use crate::args::path;
use crate::env;
use crate::failure::Failure;
use crate::output::{StatusLine, document, shown, to_stderr};
use crate::table::table;

/// More buckets share rows.
const ROWS: usize = 40;
/// How wide the chart is.
const WIDTH: usize = 80;
const LEAST_BAR: usize = 10;
/// Input between two progress updates; short lines take half a second for it.
const UPDATE_BYTES: usize = 16 * 1024 * 1024;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The connector's key, which is a name and no secret
    #[arg(long)]
    key: String,
    /// How many buckets there are
    #[arg(long, value_name = "N", env = env::BUCKET_TOTAL, value_parser = total)]
    #[arg(allow_negative_numbers = true)]
    total: Total,
    /// A file with the entities, one on each line; standard input when not given, or -
    file: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Settings {
    key: String,
    partition: Partition,
    file: Option<PathBuf>,
}

pub(super) fn task(args: &Args) -> Result<Task, Failure> {
    let file = args.file.as_deref().map(path).transpose()?;
    let file = file.filter(|file| file.as_os_str() != "-");
    let (key, partition) = (args.key.clone(), Partition::new(&args.key, args.total));
    Ok(Task::Plan(Settings { key, partition, file }))
}

pub(super) fn run(settings: &Settings, json: bool) -> Result<String, Failure> {
    let Settings { key, partition, file } = settings;
    let counts = match file {
        Some(file) => {
            let name = file.display().to_string();
            let input = File::open(file).map_err(|error| unreadable(&name, &error))?;
            count(partition, input, name)?
        }
        None => {
            if io::stdin().is_terminal() {
                to_stderr("reading entities from the terminal, one on each line, until Ctrl-D");
            }
            count(partition, io::stdin().lock(), "standard input".to_owned())?
        }
    };
    if json {
        return Ok(document(&counts.for_programs(key)));
    }
    if counts.blank > 0 {
        let lines = counted(counts.blank, "line is", "lines are");
        to_stderr(&format!("{lines} blank: an entity with an empty name"));
    }
    Ok(counts.for_people(key))
}

fn count(partition: &Partition, input: impl Read, name: String) -> Result<Counts, StoreError> {
    let mut lines = Lines::new(input, name);
    let mut counts = Counts::new(partition.total().get() as usize);
    let mut progress = CountProgress::default();
    while let Some(block) = lines.block()? {
        for name in each(block).map(entity) {
            counts.buckets[partition.bucket(name) as usize - 1] += 1;
            counts.entities += 1;
            counts.blank += u64::from(name.is_empty());
        }
        progress.add(block.len(), counts.entities);
    }
    Ok(counts)
}

/// Shows the progress of a long count on a terminal.
#[derive(Default)]
struct CountProgress {
    /// Bytes since the last update.
    bytes: usize,
    line: StatusLine,
}

impl CountProgress {
    fn add(&mut self, bytes: usize, entities: u64) {
        self.bytes += bytes;
        if self.bytes >= UPDATE_BYTES {
            self.bytes = 0;
            self.line.show(&format!("{} so far", counted(entities, "entity", "entities")));
        }
    }
}

/// How many entities there are, and how many in each bucket.
struct Counts {
    entities: u64,
    blank: u64,
    buckets: Vec<u64>,
}

impl Counts {
    fn new(total: usize) -> Self {
        Self { entities: 0, blank: 0, buckets: vec![0; total] }
    }

    fn smallest(&self) -> u64 {
        self.buckets.iter().copied().min().unwrap_or(0)
    }

    fn largest(&self) -> u64 {
        self.buckets.iter().copied().max().unwrap_or(0)
    }

    fn empty(&self) -> usize {
        self.buckets.iter().filter(|&&count| count == 0).count()
    }

    fn for_programs(&self, key: &str) -> Value {
        json!({
            "key": key,
            "total": self.buckets.len(),
            "entities": self.entities,
            "blank": self.blank,
            "smallest": self.smallest(),
            "largest": self.largest(),
            "empty": self.empty(),
            "buckets": self.buckets,
        })
    }

    fn for_people(&self, key: &str) -> String {
        let (entities, total) = (self.entities, self.buckets.len());
        let (key, buckets) = (shown(&short(key)), counted(total, "bucket", "buckets"));
        if entities == 0 {
            return format!("no entities for {buckets} of {key}\n");
        }
        let (smallest, largest, empty) = (self.smallest(), self.largest(), self.empty());
        let mean = entities as f64 / total as f64;
        let spread = largest as f64 / mean;
        let entities = counted(entities, "entity", "entities");
        format!(
            "{entities} in {buckets} of {key}\n\
             mean {mean:.1}, smallest {smallest}, largest {largest} ({spread:.2} times the mean), \
             empty {empty}\n\n{}",
            self.chart()
        )
    }

    /// A row for each bucket, or for some neighbours.
    fn chart(&self) -> String {
        let together = self.buckets.len().div_ceil(ROWS);
        let rows = self.buckets.chunks(together).enumerate();
        let mut rows: Vec<_> = rows.map(|(n, row)| self.row(n * together, row)).collect();
        let means = self.buckets.chunks(together).map(|row| sum(row) as f64 / row.len() as f64);
        let means: Vec<f64> = means.collect();
        let largest = means.iter().copied().fold(0.0, f64::max);
        // The bars have the room beside the rest, where all lines are as long as the first.
        let taken = table(COLUMNS, rows.iter().cloned()).lines().next().map_or(0, str::len) + 2;
        let room = WIDTH.saturating_sub(taken).max(LEAST_BAR) as f64;
        for (row, mean) in rows.iter_mut().zip(means) {
            // Whatever is not empty has a bar.
            row[3] = "#".repeat((mean / largest * room).ceil() as usize);
        }
        let chart = table(COLUMNS, rows);
        match together {
            1 => chart,
            _ => format!("{chart}\nEach row is {together} buckets, and its bar their mean.\n"),
        }
    }

    /// A row of the chart, without its bar.
    fn row(&self, before: usize, counts: &[u64]) -> [String; 4] {
        let (first, last, entities) = (before + 1, before + counts.len(), sum(counts));
        let name = if first == last { first.to_string() } else { format!("{first}-{last}") };
        let share = 100.0 * entities as f64 / self.entities as f64;
        [name, entities.to_string(), format!("{share:.1}%"), String::new()]
    }
}

const COLUMNS: [&str; 4] = [">BUCKET", ">ENTITIES", ">SHARE", ""];

fn sum(counts: &[u64]) -> u64 {
    counts.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(buckets: Vec<u64>) -> Counts {
        Counts { entities: sum(&buckets), blank: 0, buckets }
    }

    #[test]
    fn a_chart_shows_each_bucket() {
        let text = counts(vec![1000, 500, 0, 1]).for_people("a\u{1b}[1mb");
        assert_eq!(
            text,
            format!(
                "1501 entities in 4 buckets of a\\u{{1b}}[1mb\n\
                 mean 375.2, smallest 0, largest 1000 (2.66 times the mean), empty 1\n\n\
                 BUCKET  ENTITIES  SHARE\n     \
                 1      1000  66.6%  {}\n     \
                 2       500  33.3%  {}\n     \
                 3         0   0.0%\n     \
                 4         1   0.1%  #\n",
                "#".repeat(55),
                "#".repeat(28),
            )
        );
        assert_eq!(counts(vec![0, 0]).for_people("k"), "no entities for 2 buckets of k\n");
        let one = counts(vec![1]).for_people("k");
        assert!(
            one.starts_with("1 entity in 1 bucket of k\nmean 1.0, smallest 1, largest 1 (1.00")
        );
    }

    #[test]
    fn neighbours_share_a_row() {
        let mut buckets = vec![10; 101];
        buckets[3] = 40;
        buckets[100] = 0;
        let text = counts(buckets).for_people("k");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "1030 entities in 101 buckets of k");
        assert!(lines[1].contains("smallest 0, largest 40 (3.92 times the mean), empty 1"));
        let bars: Vec<_> = lines[4..38].iter().map(|line| line.matches('#').count()).collect();
        // Three buckets with 20 each on the mean, and two alone, of which one is empty.
        assert_eq!((bars[0], bars[1], bars[32], bars[33]), (27, 54, 27, 14));
        assert!(lines[5].starts_with("    4-6        60   5.8%  ##"), "{text}");
        assert!(lines[37].starts_with("100-101        10   1.0%  ##"), "{text}");
        assert_eq!(lines[39], "Each row is 3 buckets, and its bar their mean.");
    }

    #[test]
    fn a_chart_fits_a_window() {
        for total in [1, 2, 40, 41, 79, 80, 81, 1000, 999_999, 1_000_000] {
            for count in [1, u64::MAX / 1_000_000] {
                let text = counts(vec![count; total]).for_people("k");
                assert!(text.lines().count() <= 50, "{text}");
                let chart = text.lines().skip(3);
                assert!(chart.clone().all(|line| line.len() <= WIDTH), "{text}");
                let rows = chart.filter(|line| line.ends_with('#')).count();
                assert!((21..=40).contains(&rows) || rows == total, "{text}");
            }
        }
    }
}
