//! Collector of target lists.

use std::time::Duration;

use jiff::Span;
use tenure_core::{DutyId, Label, Listing, StoreError, Target};

use crate::error::{TargetsError, bad, too_many};

/// An entry of a list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry<'a> {
    pub(crate) id: &'a str,
    pub(crate) zone: Option<&'a str>,
    pub(crate) paused: bool,
    pub(crate) every: Option<EntryTime<'a>>,
    pub(crate) timeout: Option<EntryTime<'a>>,
}

/// A time of an entry, as its source has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EntryTime<'a> {
    Seconds(f64),
    /// As on the command line: `90s`, `1m30s`.
    Text(&'a str),
}

/// The longest time of an entry.
const MAX_TIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl EntryTime<'_> {
    fn read(self) -> Result<Duration, String> {
        let time = match self {
            Self::Seconds(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            Self::Text(text) => {
                let days = jiff::SpanRelativeTo::days_are_24_hours();
                let span = text.parse::<Span>().and_then(|span| span.to_duration(days));
                span.ok().and_then(|span| span.try_into().ok())
            }
        };
        let time: Duration = time.ok_or("is neither a number of seconds nor a time as in 30s")?;
        if time.is_zero() || time > MAX_TIME {
            return Err("is not between 1 ns and 365 days".to_owned());
        }
        Ok(time)
    }
}

/// A list being read. An invalid entry fails the whole list.
#[derive(Debug)]
pub(crate) struct Collector {
    most: usize,
    targets: Vec<Target>,
}

impl Collector {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, targets: Vec::new() }
    }

    pub(crate) fn add(&mut self, entry: &Entry<'_>) -> Result<(), TargetsError> {
        if self.targets.len() >= self.most {
            return Err(too_many(self.targets.len() + 1, self.most));
        }
        let wrong = |error: StoreError| self.wrong(&error.problem().detail);
        let id = DutyId::new(entry.id).map_err(wrong)?;
        let zone = entry.zone.map(Label::new).transpose().map_err(wrong)?;
        let time = |name: &str, time: Option<EntryTime<'_>>| {
            time.map(|time| time.read().map_err(|why| self.wrong(format!("{name} {why}"))))
                .transpose()
        };
        let (every, timeout) = (time("every", entry.every)?, time("timeout", entry.timeout)?);
        self.targets.push(Target { id, zone, paused: entry.paused, every, timeout });
        Ok(())
    }

    /// Error for an invalid next entry.
    pub(crate) fn wrong(&self, what: impl std::fmt::Display) -> TargetsError {
        bad(format!("entry {}: {what}", self.targets.len() + 1))
    }

    pub(crate) fn finish(self) -> Listing {
        Listing::new(self.targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::Code;

    #[test]
    fn the_first_one_too_many_ends_it() {
        let mut list = Collector::new(2);
        let entry = |id| Entry { id, ..Entry::default() };
        list.add(&entry("a")).unwrap();
        list.add(&Entry { zone: Some("eu"), paused: true, ..entry("b") }).unwrap();
        let error = list.add(&entry("c")).unwrap_err();
        assert_eq!(error.code(), Code::TooManyTargets);
        assert!(error.to_string().contains("at least 3 targets, and the limit is 2"), "{error}");
        assert_eq!(Collector::new(0).add(&entry("a")).unwrap_err().code(), error.code());
    }

    #[test]
    fn a_bad_entry_is_named_by_its_place() {
        for (id, zone) in [("", None), ("a\nb", None), (&*"x".repeat(513), None), ("a", Some(""))] {
            let mut list = Collector::new(9);
            list.add(&Entry { id: "fine", ..Entry::default() }).unwrap();
            let error = list.add(&Entry { id, zone, ..Entry::default() }).unwrap_err();
            assert_eq!(error.code(), Code::BadTargets, "{id}");
            assert!(error.to_string().contains(": entry 2: "), "{error}");
        }
    }

    #[test]
    fn times_are_seconds_or_text() {
        let read = |every| {
            let mut list = Collector::new(9);
            list.add(&Entry { id: "a", every: Some(every), ..Entry::default() })?;
            Ok::<_, TargetsError>(list.finish().targets()[0].every.unwrap())
        };
        for (time, ms) in [
            (EntryTime::Seconds(30.0), 30_000),
            (EntryTime::Seconds(0.25), 250),
            (EntryTime::Text("1m30s"), 90_000),
            (EntryTime::Text("1d"), 86_400_000),
        ] {
            assert_eq!(read(time).unwrap(), Duration::from_millis(ms), "{time:?}");
        }
        for bad in ["", "30", "-1s", "0s", "2y", "400d"].map(EntryTime::Text) {
            let error = read(bad).unwrap_err();
            assert!(error.to_string().contains("entry 1: every is n"), "{error}");
        }
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 4e7].map(EntryTime::Seconds) {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
