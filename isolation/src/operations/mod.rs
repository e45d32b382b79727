//! The operations: calls of the public interfaces with fixed arguments, on the prepared state.

pub(crate) mod events;
pub(crate) mod lease;
pub(crate) mod registry;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use tenure_core::StoreError;

use crate::server::Handles;
use crate::view;

/// Part of the schema that an operation works on; parts share no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Sessions, holds, checkpoints.
    Store,
    /// Inbox, tokens, connectors.
    Switchboard,
    /// A table of the tests.
    Planted,
}

/// Effect of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One transaction that may change something.
    Change,
    /// A transaction of the caller, at the level of its role.
    Effect,
    /// Like `Change`, when the lease of session `l` has expired.
    Late,
    /// Several transactions.
    Steps,
    /// One statement that changes nothing.
    Read,
}

/// Answer of an operation, without times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done, or refused by a rule.
    Done(String),
    /// An error: nothing was changed.
    Refused(String),
    /// An error: it may have happened.
    Unknown(String),
}

/// Running operation.
pub type RunningOperation = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// An operation with its arguments.
#[derive(Clone, Copy, Debug)]
pub struct TestedOperation {
    /// Name, as in `--pairs`.
    pub name: &'static str,
    /// Part of the schema.
    pub part: Part,
    /// Effect.
    pub kind: Kind,
    /// Runs it.
    pub run: fn(Handles) -> RunningOperation,
}

impl Part {
    /// Whether a table belongs to this part.
    pub(crate) fn has(self, table: &str) -> bool {
        const STORE: &[&str] = &[
            "session",
            "spent",
            "hold",
            "checkpoint",
            "history",
            "report",
            "group_document",
            "audit",
            "store",
            "group_floor",
            "iso_effect",
        ];
        match table {
            "iso_planted" => self == Self::Planted,
            table if STORE.contains(&table) => self == Self::Store,
            _ => self == Self::Switchboard,
        }
    }
}

/// Shows the answer of a call.
pub fn show<T: Debug, E: Into<StoreError>>(answer: Result<T, E>) -> Answer {
    match answer.map_err(Into::into) {
        Ok(value) => Answer::Done(view::answer(&format!("{value:?}"))),
        Err(error) if error.is_unknown() => Answer::Unknown(error.to_string()),
        Err(error) => Answer::Refused(error.to_string()),
    }
}

/// Returns all operations.
pub fn all() -> Vec<TestedOperation> {
    [lease::OPERATIONS, events::OPERATIONS, registry::OPERATIONS].concat()
}

/// A table of operations: name, kind, and the call.
macro_rules! operations {
    ($part:ident; $($name:literal $kind:ident |$on:ident| $call:expr;)*) => {
        /// The operations of this part.
        pub(crate) const OPERATIONS: &[TestedOperation] = &[$(TestedOperation {
            name: $name,
            part: Part::$part,
            kind: Kind::$kind,
            run: |$on| Box::pin(async move { show($call.await) }),
        }),*];
    };
}
pub(crate) use operations;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let all = all();
        let names: BTreeSet<&str> = all.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), all.len());
    }
}
