//! Occurrences of a schedule in a time zone.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use tenure_core::{Code, StoreError};

use crate::cron::CronExpression;
use crate::period::AlignedPeriod;

/// Changes of the clock that a search may cross: two a year for as long as expressions are
/// searched.
const MAX_CLOCK_CHANGES: usize = 200;
/// Bisections after which a search of milliseconds has ended.
const MAX_BISECTIONS: usize = 64;

/// A schedule: a cron expression or an aligned period, in a time zone.
#[derive(Clone, Debug)]
pub struct RunSchedule {
    kind: ScheduleKind,
    zone: TimeZone,
    zone_name: String,
}

#[derive(Clone, Debug)]
enum ScheduleKind {
    Cron(Box<CronExpression>),
    Period(AlignedPeriod),
}

/// Effect of a change of the clock on an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChange {
    /// Its local time does not exist: it is at the first instant after the gap.
    Moved,
    /// Its local time comes twice; this is the first.
    First,
    /// Its local time comes twice; this is the second.
    Second,
}

impl ClockChange {
    /// Describes the effect.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Moved => "the local time does not exist: at the first instant after the gap",
            Self::First => "the local time comes twice: the first",
            Self::Second => "the local time comes twice: the second",
        }
    }
}

impl RunSchedule {
    /// Parses a cron expression of five fields, in a time zone of the IANA database.
    pub fn cron(expression: &str, zone: &str) -> Result<Self, StoreError> {
        let kind = ScheduleKind::Cron(Box::new(CronExpression::parse(expression)?));
        let (zone, zone_name) = find_zone(zone)?;
        Ok(Self { kind, zone, zone_name })
    }

    /// Checks a period. In UTC it is aligned to 1970-01-01T00:00Z; in another time zone it has to
    /// be a number of days, and is aligned to local midnight.
    pub fn period(period: Duration, zone: &str) -> Result<Self, StoreError> {
        let (zone, zone_name) = find_zone(zone)?;
        let kind = ScheduleKind::Period(AlignedPeriod::new(period, zone == TimeZone::UTC)?);
        Ok(Self { kind, zone, zone_name })
    }

    /// Returns the expression, or `every 24h`.
    pub fn text(&self) -> String {
        match &self.kind {
            ScheduleKind::Cron(expression) => expression.text().to_owned(),
            ScheduleKind::Period(period) => period.text(),
        }
    }

    /// Returns the name of the time zone.
    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }

    /// Whether it has periods, of which the current one counts.
    pub fn is_period(&self) -> bool {
        matches!(self.kind, ScheduleKind::Period(_))
    }

    /// Returns the first occurrence after a time; `None` beyond the calendar.
    pub fn next(&self, after: u64) -> Option<u64> {
        let after = timestamp(after)?;
        let next = match &self.kind {
            ScheduleKind::Period(period) => period.next(after, &self.zone),
            ScheduleKind::Cron(cron) if cron.follows_clock() => self.next_elapsed(cron, after),
            ScheduleKind::Cron(cron) => self.next_local(cron, after),
        };
        u64::try_from(next?.as_millisecond()).ok()
    }

    /// Returns the newest occurrence after one time and not after another.
    pub fn latest(&self, after: u64, until: u64) -> Option<u64> {
        let mut found = self.next(after).filter(|found| *found <= until)?;
        let mut end = until;
        for _ in 0..MAX_BISECTIONS {
            if found >= end {
                break;
            }
            // Above `found` and at most `end`.
            let middle = found + (end - found).div_ceil(2);
            match self.next(middle - 1) {
                Some(next) if next <= until => found = next,
                _ => end = middle - 1,
            }
        }
        Some(found)
    }

    /// Counts the occurrences after one time and not after another, up to a limit.
    pub fn count(&self, after: u64, until: u64, limit: usize) -> usize {
        self.after(after).take(limit).take_while(|at| *at <= until).count()
    }

    /// Lists the occurrences after a time.
    pub fn after(&self, after: u64) -> impl Iterator<Item = u64> + '_ {
        std::iter::successors(self.next(after), |at| self.next(*at))
    }

    /// Returns the local time of an occurrence with its offset, as in
    /// `2026-03-29T03:00:00+02:00`.
    pub fn local(&self, at: u64) -> String {
        let Some(at) = timestamp(at) else { return format!("{at} ms") };
        at.display_with_offset(self.zone.to_offset(at)).to_string()
    }

    /// Returns how a change of the clock affects an occurrence.
    pub fn clock_change(&self, at: u64) -> Option<ClockChange> {
        let ScheduleKind::Cron(cron) = &self.kind else { return None };
        let at = timestamp(at)?;
        let local = self.zone.to_datetime(at);
        if !cron.matches(local) {
            return Some(ClockChange::Moved);
        }
        match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Fold { before, .. } if before == self.zone.to_offset(at) => {
                Some(ClockChange::First)
            }
            AmbiguousOffset::Fold { .. } => Some(ClockChange::Second),
            _ => None,
        }
    }

    /// Finds the next occurrence of an expression that names its minute and hour. Each local time
    /// counts once: in a gap at its end, when it comes twice at the first.
    fn next_local(&self, cron: &CronExpression, after: Timestamp) -> Option<Timestamp> {
        let mut local = self.zone.to_datetime(after);
        loop {
            local = cron.next(local)?;
            let ambiguous = self.zone.to_ambiguous_timestamp(local);
            let at = match ambiguous.offset() {
                AmbiguousOffset::Gap { .. } => self.end_of_gap(local)?,
                _ => ambiguous.earlier().ok()?,
            };
            if at > after {
                return Some(at);
            }
        }
    }

    /// Returns the instant at which the clock skips a local time.
    fn end_of_gap(&self, local: DateTime) -> Option<Timestamp> {
        let inside = self.zone.to_ambiguous_timestamp(local).later().ok()?;
        let after = inside.checked_add(SignedDuration::from_secs(1)).ok()?;
        Some(self.zone.preceding(after).next()?.timestamp())
    }

    /// Finds the next occurrence of an expression that follows elapsed time: whatever the clock
    /// shows, as often as it shows it.
    fn next_elapsed(&self, cron: &CronExpression, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut before) = (after, SignedDuration::ZERO);
        for _ in 0..MAX_CLOCK_CHANGES {
            let offset = self.zone.to_offset(from);
            let local = offset.to_datetime(from).checked_sub(before).ok()?;
            let found = offset.to_timestamp(cron.next(local)?).ok()?;
            match self.zone.following(from).next() {
                // The clock changes first; it may then show a time that matches.
                Some(change) if found >= change.timestamp() => {
                    (from, before) = (change.timestamp(), SignedDuration::from_secs(1));
                }
                _ => return Some(found),
            }
        }
        None
    }
}

/// Formats a time in UTC, as in `2026-03-29T01:00:00Z`.
pub fn utc(unix_ms: u64) -> String {
    timestamp(unix_ms).map_or_else(|| format!("{unix_ms} ms"), |at| at.to_string())
}

fn timestamp(unix_ms: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(unix_ms).ok()?).ok()
}

/// Finds a time zone: in the system's database, else in the one of this program.
fn find_zone(name: &str) -> Result<(TimeZone, String), StoreError> {
    if ["UTC", "Etc/UTC"].iter().any(|utc| name.eq_ignore_ascii_case(utc)) {
        return Ok((TimeZone::UTC, "UTC".to_owned()));
    }
    let zone = TimeZone::get(name).map_err(|_| {
        let what = format!(
            "there is no time zone \"{name}\"; give a name of the IANA database, such as UTC or \
             Europe/Paris"
        );
        StoreError::refused(Code::BadSchedule, what)
    })?;
    let name = zone.iana_name().unwrap_or(name).to_owned();
    Ok((zone, name))
}
