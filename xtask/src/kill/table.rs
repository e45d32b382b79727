//! Kill table in the document.

use std::fmt;

use anyhow::{Context, Result};

use super::judges::{UNBROKEN, Unbroken, WITHOUT, rules};

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
    Test { package: &'static str, test: String },
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

/// Result of one mutant in one place.
#[derive(Clone, Debug)]
pub(super) struct MutantRow {
    pub(super) name: String,
    pub(super) rule: String,
    pub(super) what: String,
    /// Files that break the rule in this place.
    pub(super) files: Vec<String>,
    pub(super) noticed: Noticed,
}

/// Formats the whole table, with at least one line for each rule.
pub(super) fn of(lines: &[MutantRow], seeds: u64) -> String {
    let mut text = format!(
        "Written by `cargo xtask kill-table --seeds {seeds}`; `--check` compares.\n\n\
         | rule | switched off | in | noticed by | after seeds |\n\
         |---|---|---|---|---|\n"
    );
    for rule in rules() {
        let mut before = "";
        for MutantRow { name, what, files, noticed, .. } in lines.iter().filter(|l| l.rule == rule)
        {
            let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
            let what = if name == before { "" } else { &format!(": {what}") };
            let files = files.join(", ");
            text += &format!("| {rule} | `{name}`{what} | {files} | {noticed} |\n");
            before = name;
        }
        let is_of = |it: &&Unbroken| lines.iter().any(|l| l.rule == rule && l.name == it.mutant);
        for Unbroken { mutant, places, why } in UNBROKEN.iter().filter(is_of) {
            let names: Vec<&str> = places.iter().map(|place| place.name()).collect();
            let places = names.join(", ");
            text +=
                &format!("| {rule} | `{mutant}` has no switch in {places}: {why}. | - | - | - |\n");
        }
        for (_, why) in WITHOUT.iter().filter(|(without, _)| *without == rule) {
            text += &format!("| {rule} | {why} | - | - | - |\n");
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
        let line = |name: &str, rule: &str| MutantRow {
            name: name.to_owned(),
            rule: rule.to_owned(),
            what: "Breaks.".to_owned(),
            files: vec!["a/b.rs".to_owned()],
            noticed: noticed.clone(),
        };
        let lines =
            ["s2", "r14", "r2", "r2"].map(|it| line(&format!("{it}-x"), &it.to_uppercase()));
        let table = of(&lines, 10);
        let rules: Vec<&str> = table
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(' ').next())
            .skip_while(|rule| *rule == "rule")
            .collect();
        assert_eq!(rules, ["R1", "R2", "R2", "R13", "R14", "S1", "S2"]);
        assert!(table.contains("| R2 | `r2-x`: Breaks. | `a/b.rs` | L2 | 3 |\n"), "{table}");
        assert!(table.contains("| R2 | `r2-x` | `a/b.rs` | L2 | 3 |\n"), "{table}");
    }
}
