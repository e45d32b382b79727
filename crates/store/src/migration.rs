//! Migrations: append-only files, each applied once, some of them breaking.

use tenure_core::mutant::Swap;
use tenure_core::{Code, StoreError, StoreResult};

/// A numbered file. Its first line may be `--! breaking: why`: a binary that does not know such a
/// migration must not touch a store that has it.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Position, from 1.
    pub number: i64,
    /// Topic, in a word.
    pub name: &'static str,
    /// Statements.
    pub sql: &'static str,
}

/// The migrations of one owner, and the table that records which were applied. A store has its own
/// history; a crate with tables beside it has another.
#[derive(Clone, Copy, Debug)]
pub struct MigrationHistory {
    /// Table name that needs no quotes.
    pub table: &'static str,
    /// Migrations in order.
    pub migrations: &'static [Migration],
    /// Parts of their files that mutants replace.
    pub swaps: &'static [Swap],
}

impl Migration {
    /// Returns why binaries older than this migration must stop; empty when they may continue.
    pub(crate) fn breaking(&self) -> &'static str {
        let first = self.sql.lines().next().unwrap_or_default();
        first.strip_prefix("--! breaking: ").unwrap_or_default()
    }
}

/// A migration that a store has recorded as applied.
#[derive(Clone, Debug)]
pub(crate) struct AppliedMigration {
    pub(crate) number: i64,
    pub(crate) name: String,
    pub(crate) breaking: String,
}

/// Returns which of `known` are still to be applied, or why this binary must stop.
pub(crate) fn pending<'a>(
    known: &'a [Migration],
    applied: &[AppliedMigration],
) -> StoreResult<Vec<&'a Migration>> {
    let is_known = |number: i64| known.iter().any(|migration| migration.number == number);
    for newer in applied.iter().filter(|applied| !is_known(applied.number)) {
        if !newer.breaking.is_empty() {
            let AppliedMigration { number, name, breaking } = newer;
            return Err(StoreError::refused(
                Code::NewerSchema,
                format!("migration {number} ({name}) is breaking: {breaking}"),
            ));
        }
    }
    let is_applied =
        |migration: &&Migration| applied.iter().any(|applied| applied.number == migration.number);
    Ok(known.iter().filter(|migration| !is_applied(migration)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Migration; 2] = [
        Migration { number: 1, name: "ground", sql: "SELECT 1" },
        Migration { number: 2, name: "zones", sql: "--! breaking: holds moved\nSELECT 2" },
    ];

    fn applied(number: i64, breaking: &str) -> AppliedMigration {
        AppliedMigration { number, name: "x".to_owned(), breaking: breaking.to_owned() }
    }

    fn numbers(applied: &[AppliedMigration]) -> Vec<i64> {
        pending(&KNOWN, applied).unwrap().iter().map(|migration| migration.number).collect()
    }

    #[test]
    fn what_is_missing_is_pending() {
        assert_eq!(numbers(&[]), [1, 2]);
        assert_eq!(numbers(&[applied(1, "")]), [2]);
        assert_eq!(KNOWN[0].breaking(), "");
        assert_eq!(KNOWN[1].breaking(), "holds moved");
    }

    #[test]
    fn a_newer_store_is_refused_only_when_it_broke_something() {
        assert_eq!(numbers(&[applied(1, ""), applied(2, ""), applied(3, "")]), [0_i64; 0]);
        let error = pending(&KNOWN, &[applied(3, "cursors are signed")]).unwrap_err();
        assert_eq!(error.code(), Code::NewerSchema);
        assert!(error.to_string().contains("cursors are signed"));
    }
}
