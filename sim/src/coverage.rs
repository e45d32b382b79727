//! Coverage: counts what the runs reached, because a fault that never happens proves nothing.

use std::collections::BTreeMap;
use std::fmt;

use tenure_core::Change;

use crate::scenario::{Fault, Kind};

/// Reasons for which work is asked to finish.
const DRAINS: &[&str] = &["balance", "drain", "gone", "leave", "paused", "pin"];

/// Lines that operators write into the group document.
const OPERATORS: &[&str] = &["cordon", "drain", "pause", "pause-all", "pin", "weight"];

/// Number of times that each thing was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<(&'static str, &'static str), u64>);

impl Coverage {
    /// Counts one occurrence.
    pub fn count(&mut self, kind: &'static str, what: &'static str) {
        *self.0.entry((kind, what)).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (key, count) in &other.0 {
            *self.0.entry(*key).or_default() += count;
        }
    }

    /// Returns how often a thing was reached.
    pub fn of(&self, kind: &'static str, what: &'static str) -> u64 {
        self.0.get(&(kind, what)).copied().unwrap_or(0)
    }

    /// Returns what a thousand seeds must reach and did not: every kind of store, fault, record,
    /// reason to drain and operator line.
    pub fn missing(&self) -> Vec<String> {
        let stores = Kind::ALL.iter().map(|kind| ("store", kind.as_str()));
        let faults = Fault::ALL.iter().map(|fault| ("fault", fault.as_str()));
        let changes = Change::ALL.iter().map(|change| ("record", change.as_str()));
        let drains = DRAINS.iter().map(|why| ("drain", *why));
        let operators = OPERATORS.iter().map(|what| ("operator", *what));
        self.missing_of(stores.chain(faults).chain(changes).chain(drains).chain(operators))
    }

    /// Returns the expected things that were not reached.
    pub fn missing_of(
        &self,
        expected: impl Iterator<Item = (&'static str, &'static str)>,
    ) -> Vec<String> {
        expected
            .filter(|(kind, what)| self.of(kind, what) == 0)
            .map(|(kind, what)| format!("{kind} {what}"))
            .collect()
    }
}

/// Displays a table, one line per entry.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((kind, what), count) in &self.0 {
            writeln!(f, "{kind:<9}{what:<24} {count:>12}")?;
        }
        Ok(())
    }
}
