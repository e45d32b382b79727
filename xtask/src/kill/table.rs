//! Kill table in the document.

use std::fmt;

use anyhow::{Context, Result};

use super::judges::{RULES, WITHOUT};

/// Page with the table.
pub(super) const DOCUMENT: &str = "docs/reference/guarantees.md";
const BEGIN: &str = "<!-- kill-table:begin -->";
const END: &str = "<!-- kill-table:end -->";

/// Check that noticed a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Noticed {
    /// Checkers of the simulation, with the number of seeds.
    Checker { seeds: u64, checkers: String },
    /// A named test.
    Test { package: &'static str, test: &'static str },
    /// No check: the mutant survived.
    Nobody,
}

impl fmt::Display for Noticed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checker { seeds, checkers } => write!(f, "{checkers} | {seeds}"),
            Self::Test { package, test } => write!(f, "`{package}` `{test}` | -"),
            Self::Nobody => write!(f, "nobody"),
        }
    }
}

/// Result of one mutant.
#[derive(Clone, Debug)]
pub(super) struct MutantRow {
    pub(super) name: String,
    pub(super) rule: u32,
    pub(super) what: String,
    pub(super) noticed: Noticed,
}

/// Formats the whole table, with at least one line for each rule.
pub(super) fn of(lines: &[MutantRow], seeds: u64) -> String {
    let mut text = format!(
        "Written by `cargo xtask kill-table --seeds {seeds}`; `--check` compares.\n\n\
         | rule | switched off | what that does | noticed by | after seeds |\n\
         |---|---|---|---|---|\n"
    );
    for rule in 1..=RULES {
        for MutantRow { name, what, noticed, .. } in lines.iter().filter(|line| line.rule == rule) {
            text += &format!("| R{rule} | `{name}` | {what} | {noticed} |\n");
        }
        for (_, why) in WITHOUT.iter().filter(|(without, _)| *without == rule) {
            text += &format!("| R{rule} | - | {why} | - | - |\n");
        }
    }
    text
}

/// Returns the document with its table replaced.
pub(super) fn replace(document: &str, table: &str) -> Result<String> {
    let missing = || format!("{DOCUMENT} has no {BEGIN} ... {END}");
    let (before, rest) = document.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_replaced_and_nothing_else() {
        let document = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let replaced = replace(&document, "new\n").unwrap();
        assert_eq!(replaced, format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert!(replace("a", "new").is_err());
    }

    #[test]
    fn rules_stand_in_their_order() {
        let noticed = Noticed::Checker { seeds: 3, checkers: "L2".to_owned() };
        let line = |name: &str, rule| MutantRow {
            name: name.to_owned(),
            rule,
            what: "Breaks.".to_owned(),
            noticed: noticed.clone(),
        };
        let table = of(&[line("r14-x", 14), line("r2-x", 2)], 10);
        let rules: Vec<&str> =
            table.lines().filter_map(|line| line.strip_prefix("| R")?.split(' ').next()).collect();
        assert_eq!(rules, ["1", "2", "13", "14", "15", "16"]);
        assert!(table.contains("| R2 | `r2-x` | Breaks. | L2 | 3 |\n"), "{table}");
    }
}
