//! Buckets that take part in a rotation, stored as intervals: the cost of a range does not depend
//! on its length.

use std::fmt;

use super::invalid::short;
use super::{Invalid, Total};

/// A non-empty subset of the buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// Ascending, with a gap between any two.
    spans: Vec<BucketSpan>,
}

/// First and last bucket, both included.
type BucketSpan = (u32, u32);

impl Ranges {
    /// Reads ranges from a text such as `1-3,5,7-9`.
    pub fn parse(text: &str, total: Total) -> Result<Self, Invalid> {
        let mut ranges = RangesBuilder::new(total);
        ranges.add(text)?;
        ranges.build(format_args!("{text:?}"))
    }

    /// Returns the smallest bucket above `last`, or else the smallest of all.
    pub fn after(&self, last: u32) -> u32 {
        let next = self.spans.partition_point(|(_, to)| *to <= last);
        match self.spans.get(next) {
            Some((from, _)) => (*from).max(last + 1),
            // There is always at least one span.
            None => self.spans.first().map_or(1, |(from, _)| *from),
        }
    }

    /// Whether a bucket takes part.
    pub fn contains(&self, bucket: u32) -> bool {
        let next = self.spans.partition_point(|(_, to)| *to < bucket);
        self.spans.get(next).is_some_and(|(from, _)| *from <= bucket)
    }

    /// Returns the number of buckets that take part.
    pub fn count(&self) -> u32 {
        self.spans.iter().map(|(from, to)| to - from + 1).sum()
    }

    /// Iterates over the buckets that take part, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.spans.iter().flat_map(|(from, to)| *from..=*to)
    }
}

/// Builder of [`Ranges`], text by text. Memory is bounded by twice the number of distinct
/// intervals, however often a range is repeated.
#[derive(Clone, Debug)]
pub struct RangesBuilder {
    total: Total,
    spans: Vec<BucketSpan>,
    /// Number of spans that were sorted and merged by the last [`RangesBuilder::tidy`].
    tidied: usize,
}

/// Number of unsorted spans that is always accepted before sorting.
const MAX_LINEAR_SPANS: usize = 1_024;

impl RangesBuilder {
    /// Creates a builder without ranges.
    pub fn new(total: Total) -> Self {
        Self { total, spans: Vec::new(), tidied: 0 }
    }

    /// Adds the ranges of a text: comma-separated numbers and ranges. Blank parts are skipped.
    pub fn add(&mut self, text: &str) -> Result<(), Invalid> {
        for piece in text.split(',').filter(|piece| !piece.trim().is_empty()) {
            let span = self.span(piece)?;
            self.spans.push(span);
            if self.spans.len() > 2 * self.tidied + MAX_LINEAR_SPANS {
                self.tidy();
            }
        }
        Ok(())
    }

    /// Returns the ranges, or an error that names `given` when there are none.
    pub fn build(mut self, given: impl fmt::Display) -> Result<Ranges, Invalid> {
        if self.spans.is_empty() {
            let message = "bucket_ranges cannot be empty".to_owned();
            return Err(Invalid::of_ranges(given, message, self.total));
        }
        self.tidy();
        Ok(Ranges { spans: self.spans })
    }

    fn span(&self, piece: &str) -> Result<BucketSpan, Invalid> {
        let (total, shown) = (self.total, short(piece));
        let refused = |message| Invalid::piece(piece, message, total);
        let mut parts = piece.split('-');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        if parts.next().is_some() {
            return Err(refused(format!(
                "Invalid range format: {shown}. Valid formats are: single number (e.g., '7') or \
                 number range (e.g., '3-5')"
            )));
        }
        let number = |part: &str| {
            let part = part.trim();
            let invalid = || refused(format!("Invalid number in range: {}", short(part)));
            decimal(part).ok_or_else(invalid)
        };
        let from = number(first)?;
        let to = second.map_or(Ok(from), number)?;
        if to < from {
            let message = format!("Invalid range {shown}: end cannot be less than start");
            return Err(refused(message));
        }
        match (total.has(from), total.has(to)) {
            (Some(from), Some(to)) => Ok((from, to)),
            _ => Err(refused(format!(
                "Invalid bucket range {shown}: values must be between 1 and {total}"
            ))),
        }
    }

    /// Sorts the intervals and merges those that touch.
    fn tidy(&mut self) {
        self.spans.sort_unstable();
        self.spans.dedup_by(|next, last| {
            let touch = next.0 <= last.1 + 1;
            if touch {
                last.1 = last.1.max(next.1);
            }
            touch
        });
        self.tidied = self.spans.len();
    }
}

/// Parses decimal digits only; a number too large for `u64` becomes `u64::MAX`.
fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_costs_the_same_whatever_its_length() {
        let total = Total::new(1_000_000).unwrap();
        let mut ranges = RangesBuilder::new(total);
        for _ in 0..1_000_000 {
            ranges.add("1-1000000").unwrap();
        }
        assert!(ranges.spans.capacity() <= 4 * MAX_LINEAR_SPANS, "{}", ranges.spans.capacity());
        // As many intervals as possible, three times.
        let mut ranges = RangesBuilder::new(total);
        for from in (1..=1_000_000).step_by(2).cycle().take(1_500_000) {
            ranges.add(&from.to_string()).unwrap();
        }
        let capacity = ranges.spans.capacity();
        assert!(capacity <= 1 << 21, "{capacity}");
        assert_eq!(ranges.build("").unwrap().count(), 500_000);
    }
}
