//! `tenure bucket plan`.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;

use serde_json::{Value, json};
use tenure_core::StoreError;
use tenure_core::bucket::{Partition, Total, short};
use tenure_core::text::counted;
use tenure_operate::bucket::{self, BucketCounts, EntityLines, unreadable};

use super::total;
use crate::args::{Global, path};
use crate::env;
use crate::failure::Failure;
use crate::output::{StatusLine, shown, to_stderr};
use crate::paint;
use crate::table::table;

/// Maximum number of rows of the chart; with more buckets, neighbours share a row.
const MAX_ROWS: usize = 40;
/// Width of the chart in columns.
const CHART_WIDTH: usize = 80;
const MIN_BAR_WIDTH: usize = 10;
/// Bytes between two progress updates: half a second of short lines.
pub(super) const UPDATE_BYTES: usize = 16 * 1024 * 1024;

#[derive(clap::Args)]
pub(crate) struct BucketPlanArgs {
    /// Key of the connector: a name, not a secret
    #[arg(long)]
    key: String,
    /// Number of buckets
    #[arg(long, value_name = "N", env = env::BUCKET_TOTAL, value_parser = total)]
    #[arg(allow_negative_numbers = true)]
    total: Total,
    /// File with one entity per line [default: standard input, as -]
    file: Option<PathBuf>,
}

pub(super) fn run(args: &BucketPlanArgs, global: &Global) -> Result<String, Failure> {
    let (key, partition) = (&args.key, Partition::new(&args.key, args.total));
    let file = args.file.as_deref().map(path).transpose()?;
    let counts = match file.filter(|file| file.as_os_str() != "-") {
        Some(file) => {
            let name = file.display().to_string();
            let input = File::open(file).map_err(|error| unreadable(&name, &error))?;
            count(&partition, input, name)?
        }
        None => {
            if io::stdin().is_terminal() {
                to_stderr("reading entities from the terminal, one on each line, until Ctrl-D");
            }
            count(&partition, io::stdin().lock(), "standard input".to_owned())?
        }
    };
    Ok(global.show(&value(&counts, key), || {
        if counts.blank > 0 {
            let lines = counted(counts.blank, "line is", "lines are");
            to_stderr(&format!("{lines} blank: an entity with an empty name"));
        }
        text(&counts, key)
    }))
}

/// Counts entities, with progress on a terminal.
fn count(
    partition: &Partition,
    input: impl Read,
    name: String,
) -> Result<BucketCounts, StoreError> {
    let (mut line, mut bytes) = (StatusLine::default(), 0);
    bucket::count(partition, &mut EntityLines::new(input, name), |block, entities| {
        bytes += block;
        if bytes >= UPDATE_BYTES {
            bytes = 0;
            line.show(&format!("{} so far", counted(entities, "entity", "entities")));
        }
    })
}

/// Smallest and largest bucket, and the number of empty ones.
fn extremes(counts: &BucketCounts) -> (u64, u64, usize) {
    let buckets = || counts.buckets.iter().copied();
    let empty = buckets().filter(|count| *count == 0).count();
    (buckets().min().unwrap_or(0), buckets().max().unwrap_or(0), empty)
}

fn value(counts: &BucketCounts, key: &str) -> Value {
    let (smallest, largest, empty) = extremes(counts);
    json!({
        "key": key,
        "total": counts.buckets.len(),
        "entities": counts.entities,
        "blank": counts.blank,
        "smallest": smallest,
        "largest": largest,
        "empty": empty,
        "buckets": counts.buckets,
    })
}

fn text(counts: &BucketCounts, key: &str) -> String {
    let (entities, total) = (counts.entities, counts.buckets.len());
    let (key, buckets) = (shown(&short(key)), counted(total, "bucket", "buckets"));
    if entities == 0 {
        return format!("no entities for {buckets} of {key}\n");
    }
    let (smallest, largest, empty) = extremes(counts);
    let mean = entities as f64 / total as f64;
    let ratio = largest as f64 / mean;
    let entities = counted(entities, "entity", "entities");
    format!(
        "{entities} in {buckets} of {key}\n\
         mean {mean:.1}, smallest {smallest}, largest {largest} ({ratio:.2} times the mean), \
         empty {empty}\n\n{}",
        chart(counts)
    )
}

/// Formats a row for each bucket, or for several neighbours.
fn chart(counts: &BucketCounts) -> String {
    let together = counts.buckets.len().div_ceil(MAX_ROWS);
    let chunks = || counts.buckets.chunks(together);
    let rows = chunks().enumerate();
    let mut rows: Vec<_> = rows.map(|(n, row)| chart_row(counts, n * together, row)).collect();
    let means: Vec<f64> = chunks().map(|row| sum(row) as f64 / row.len() as f64).collect();
    let largest = means.iter().copied().fold(0.0, f64::max);
    // All lines are as long as the first; the bars get the rest of the width.
    let taken = table(COLUMNS, rows.iter().cloned()).lines().next().map_or(0, paint::width) + 2;
    let width = CHART_WIDTH.saturating_sub(taken).max(MIN_BAR_WIDTH) as f64;
    for (row, mean) in rows.iter_mut().zip(means) {
        // Round up, so that every bucket that is not empty has a bar.
        row[3] = "#".repeat((mean / largest * width).ceil() as usize);
    }
    let chart = table(COLUMNS, rows);
    match together {
        1 => chart,
        _ => format!("{chart}\nEach row is {together} buckets, and its bar their mean.\n"),
    }
}

/// Formats a row of the chart, without its bar.
fn chart_row(all: &BucketCounts, before: usize, counts: &[u64]) -> [String; 4] {
    let (first, last, entities) = (before + 1, before + counts.len(), sum(counts));
    let name = if first == last { first.to_string() } else { format!("{first}-{last}") };
    let share = 100.0 * entities as f64 / all.entities as f64;
    [name, entities.to_string(), format!("{share:.1}%"), String::new()]
}

const COLUMNS: [&str; 4] = [">BUCKET", ">ENTITIES", ">SHARE", ""];

fn sum(counts: &[u64]) -> u64 {
    counts.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(buckets: Vec<u64>) -> BucketCounts {
        BucketCounts { entities: sum(&buckets), blank: 0, buckets }
    }

    #[test]
    fn a_chart_shows_each_bucket() {
        let shown = text(&counts(vec![1000, 500, 0, 1]), "a\u{1b}[1mb");
        assert_eq!(
            shown,
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
        assert_eq!(text(&counts(vec![0, 0]), "k"), "no entities for 2 buckets of k\n");
        let one = text(&counts(vec![1]), "k");
        assert!(
            one.starts_with("1 entity in 1 bucket of k\nmean 1.0, smallest 1, largest 1 (1.00")
        );
    }

    #[test]
    fn neighbours_share_a_row() {
        let mut buckets = vec![10; 101];
        buckets[3] = 40;
        buckets[100] = 0;
        let shown = text(&counts(buckets), "k");
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "1030 entities in 101 buckets of k");
        assert!(lines[1].contains("smallest 0, largest 40 (3.92 times the mean), empty 1"));
        let bars: Vec<_> = lines[4..38].iter().map(|line| line.matches('#').count()).collect();
        // The second row has three buckets with a mean of 20, the last row two, one of them empty.
        assert_eq!((bars[0], bars[1], bars[32], bars[33]), (27, 54, 27, 14));
        assert!(lines[5].starts_with("    4-6        60   5.8%  ##"), "{shown}");
        assert!(lines[37].starts_with("100-101        10   1.0%  ##"), "{shown}");
        assert_eq!(lines[39], "Each row is 3 buckets, and its bar their mean.");
    }

    #[test]
    fn a_chart_fits_a_window() {
        for total in [1, 2, 40, 41, 79, 80, 81, 1000, 999_999, 1_000_000] {
            for count in [1, u64::MAX / 1_000_000] {
                let shown = text(&counts(vec![count; total]), "k");
                assert!(shown.lines().count() <= 50, "{shown}");
                let chart = shown.lines().skip(3);
                assert!(chart.clone().all(|line| line.len() <= CHART_WIDTH), "{shown}");
                let rows = chart.filter(|line| line.ends_with('#')).count();
                assert!((21..=40).contains(&rows) || rows == total, "{shown}");
            }
        }
    }
}
