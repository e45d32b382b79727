//! The pages of rules and the kill table agree with each other and with the sources.

use std::collections::{BTreeMap, BTreeSet};

use super::map::defines;
use super::{File, TidyFinding};
use crate::kill::{Sources, has_switch, rules};

const RULES_PAGE: &str = "docs/reference/rules.md";
const KILL_TABLE: &str = "docs/reference/guarantees.md";
const MUTANTS: &str = "crates/core/src/mutant.rs";
const CONTRACT: &str = "crates/switchboard/src/storage/mod.rs";

/// Checks the tables against the list of rules, the mutants and the files.
pub(crate) fn check(files: &[File], exists: impl Fn(&str) -> bool) -> Vec<TidyFinding> {
    let text = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        let missing = || finding(path, 1, "the file is missing", "the rules are compared with it");
        file.map(|file| file.text.as_str()).ok_or_else(missing)
    };
    let checked = || {
        let (page, table) = (text(RULES_PAGE)?, text(KILL_TABLE)?);
        let mut findings = rules_of_page(page, text(CONTRACT)?);
        findings.extend(implementers(page, files));
        findings.extend(kill_table(table, text(MUTANTS)?, &Sources::new(files), exists));
        Ok(findings)
    };
    checked().unwrap_or_else(|missing| vec![missing])
}

fn finding(path: &str, line: usize, what: &str, instead: &str) -> TidyFinding {
    TidyFinding::new(path, line, "rules", what, instead)
}

/// Returns the rows of tables whose first cell is a rule, with their line numbers and cells.
fn rows(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    let is_rule = |cell: &str| {
        let number = cell.strip_prefix(['R', 'S']);
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let rows = (1..).zip(text.lines()).filter(|(_, line)| line.starts_with("| "));
    rows.map(|(number, line)| (number, line.split('|').map(str::trim).skip(1).collect::<Vec<_>>()))
        .filter(move |(_, row)| is_rule(row[0]))
}

/// Each rule has one row, which does not put it off; the contract has a sentence for each S.
fn rules_of_page(page: &str, contract: &str) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for rule in rules() {
        let count = rows(page).filter(|(_, row)| row[0] == rule).count();
        if count != 1 {
            let what = format!("{rule} has {count} rows");
            findings.push(finding(RULES_PAGE, 1, &what, "describe each rule once"));
        }
        let sentence = rule.strip_prefix('S').map(|number| format!("/// {number}. "));
        if sentence.is_some_and(|sentence| !contract.contains(&sentence)) {
            let what = format!("the contract has no sentence for {rule}");
            findings.push(finding(CONTRACT, 1, &what, "number the sentences as in rules.md"));
        }
    }
    let later = rows(page).filter(|(_, row)| {
        let last = row.iter().rev().find(|cell| !cell.is_empty());
        last.is_some_and(|cell| cell.split(|c: char| !c.is_alphabetic()).any(|w| w == "later"))
    });
    let later = later.map(|(line, _)| {
        finding(
            RULES_PAGE,
            line,
            "the rule is for later",
            "say what keeps it, or that nothing does",
        )
    });
    findings.extend(later);
    findings
}

/// Each `crate::module` in the last column is a module or an item of that crate.
fn implementers(page: &str, files: &[File]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (line, row) in rows(page) {
        let Some(cell) = row.iter().rev().find(|cell| !cell.is_empty()) else { continue };
        for name in cell.split('`').skip(1).step_by(2) {
            let Some((package, item)) = name.split_once("::") else { continue };
            let folder = format!("crates/{package}/src/");
            let path = format!("{folder}{}", item.replace("::", "/"));
            let is_there = |file: &&File| {
                file.path == format!("{path}.rs")
                    || file.path == format!("{path}/mod.rs")
                    || (file.path.starts_with(&folder) && defines(file, item))
            };
            if package.chars().all(char::is_lowercase)
                && exists_package(package, files)
                && !files.iter().any(|file| is_there(&file))
            {
                let what = format!("{name} is not there");
                findings.push(finding(
                    RULES_PAGE,
                    line,
                    &what,
                    "name the code that keeps the rule",
                ));
            }
        }
    }
    findings
}

fn exists_package(package: &str, files: &[File]) -> bool {
    files.iter().any(|file| file.path.starts_with(&format!("crates/{package}/src/")))
}

/// The kill table has every mutant and no other, every rule, and files that exist.
fn kill_table(
    table: &str,
    mutants: &str,
    sources: &Sources<'_>,
    exists: impl Fn(&str) -> bool,
) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    let (mut named, mut seen) = (BTreeMap::<&str, BTreeSet<&str>>::new(), BTreeSet::new());
    for (line, row) in rows(table) {
        seen.insert(row[0]);
        let mutant = row[1].strip_prefix('`').and_then(|cell| cell.split('`').next());
        let Some(mutant) = mutant else {
            if has_switch(row[0]) {
                let what = format!("{} has no mutant", row[0]);
                findings.push(finding(KILL_TABLE, line, &what, "run `cargo xtask kill-table`"));
            }
            continue;
        };
        let files = named.entry(mutant).or_default();
        for file in row[2].split('`').skip(1).step_by(2) {
            files.insert(file);
            if !exists(file) && !exists(&format!("crates/{file}")) {
                let what = format!("{file} is not there");
                findings.push(finding(KILL_TABLE, line, &what, "run `cargo xtask kill-table`"));
            }
        }
    }
    let known: BTreeSet<&str> = mutants.split('"').filter(|text| is_mutant(text)).collect();
    let listed: BTreeSet<&str> = named.keys().copied().collect();
    for name in known.symmetric_difference(&listed) {
        let what = format!("{name} is either no mutant or not in the kill table");
        findings.push(finding(KILL_TABLE, 1, &what, "run `cargo xtask kill-table`"));
    }
    for (name, files) in named {
        let broken = sources.of(name);
        if broken.iter().map(String::as_str).collect::<BTreeSet<_>>() != files {
            let what = format!("the files of {name} are {broken:?}");
            findings.push(finding(KILL_TABLE, 1, &what, "run `cargo xtask kill-table`"));
        }
    }
    for rule in rules().filter(|rule| !seen.contains(rule.as_str())) {
        let what = format!("{rule} is not in the kill table");
        findings.push(finding(KILL_TABLE, 1, &what, "run `cargo xtask kill-table`"));
    }
    findings
}

/// Whether a text is the name of a mutant, such as `r2-same`.
fn is_mutant(text: &str) -> bool {
    let parts = text.strip_prefix(['r', 's']).and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(number, word)| {
        number.parse::<u32>().is_ok_and(|number| number > 0)
            && word.chars().all(|c| c.is_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(findings: &[TidyFinding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.what.as_str()).collect()
    }

    fn page(skip: &str, last: &str) -> String {
        let row = |rule: String| format!("| {rule} | Text. | `core::a` {last} |\n");
        rules().filter(|rule| rule != skip).map(row).collect()
    }

    fn contract() -> String {
        (1..=20).map(|n| format!("/// {n}. Sentence.\n")).collect()
    }

    #[test]
    fn every_rule_has_a_row_that_says_what_keeps_it() {
        assert!(rules_of_page(&page("", ""), &contract()).is_empty());
        assert_eq!(whats(&rules_of_page(&page("R7", ""), &contract())), ["R7 has 0 rows"]);
        let later = rules_of_page(&page("", "later"), &contract());
        assert_eq!(later.len(), rules().count());
        let short = rules_of_page(&page("", ""), "/// 1. Sentence.\n");
        assert!(whats(&short).contains(&"the contract has no sentence for S2"));
    }

    #[test]
    fn what_keeps_a_rule_exists() {
        let files = [File::new("crates/core/src/a.rs", "fn b() { c() }".to_owned())];
        assert!(implementers("| R1 | x | `core::a`, `core::b` |", &files).is_empty());
        let gone = implementers("| R1 | x | `core::c`, `core::a::d` |", &files);
        assert_eq!(whats(&gone), ["core::c is not there", "core::a::d is not there"]);
        let missing = check(&[], |_| true);
        assert_eq!(whats(&missing), ["the file is missing"]);
    }

    #[test]
    fn the_table_has_every_mutant_and_rule() {
        let row = |rule: String| match has_switch(&rule) {
            true => format!("| {rule} | `{}-x`: Breaks. | `a.rs` | t | - |\n", rule.to_lowercase()),
            false => format!("| {rule} | No switch: why. | - | - | - |\n"),
        };
        let table: String = rules().map(row).collect();
        let name = |rule: String| format!("\"{}-x\"\n", rule.to_lowercase());
        let mutants: String = rules().filter(|rule| has_switch(rule)).map(name).collect();
        let asks = |rule: String| format!("Mutant::{rule}X.is_on()\n");
        let asks: String = rules().filter(|rule| has_switch(rule)).map(asks).collect();
        let files = [File::new("crates/a.rs", asks)];
        let sources = Sources::new(&files);
        assert!(kill_table(&table, &mutants, &sources, |_| true).is_empty());
        let unlisted =
            kill_table(&table.replace("| `a.rs`", "| `b.rs`"), &mutants, &sources, |_| true);
        assert!(whats(&unlisted).contains(&"the files of r2-x are [\"a.rs\"]"));
        let more = format!("{mutants}\"r2-new\"");
        let what = "r2-new is either no mutant or not in the kill table";
        assert_eq!(whats(&kill_table(&table, &more, &sources, |_| true)), [what]);
        let gone =
            kill_table("| R2 | `r2-x`: B. | `a.rs` | t | - |", &mutants, &sources, |_| false);
        assert!(whats(&gone).contains(&"a.rs is not there"));
        assert!(whats(&gone).contains(&"R3 is not in the kill table"));
    }
}
