//! Crate dependencies: as ARCHITECTURE.md lists them, and without those that it forbids.

use std::collections::{BTreeMap, BTreeSet};

use super::TidyFinding;
use super::metadata::Metadata;

/// Page with the graph.
pub(crate) const DOCUMENT: &str = "ARCHITECTURE.md";

/// Packages that ship, and packages that must not ship with them.
const SHIPPED: &[&str] = &["tenure", "tenure-cli"];
const DEV_ONLY: &[&str] = &["testkit", "xtask"];

/// Table row: its line in the document, and its cells.
type GraphRow = (usize, Vec<String>);

pub(crate) fn check(metadata: &Metadata, document: Option<&str>) -> Vec<TidyFinding> {
    let mut findings = dev_only_packages(metadata);
    let Some(document) = document else {
        let what = "the file is absent";
        let instead = "write it, with a table between `<!-- crate-graph -->` and \
                       `<!-- /crate-graph -->`";
        findings.push(finding(1, what, instead));
        return findings;
    };
    for (name, judge) in [
        ("crate-graph", compare_graph as fn(&Metadata, &[GraphRow]) -> Vec<TidyFinding>),
        ("forbidden", forbidden_packages),
    ] {
        match table(document, name) {
            Some(rows) => findings.extend(judge(metadata, &rows)),
            None => {
                let what = format!("there is no table between `<!-- {name} -->` marks");
                findings.push(finding(1, &what, "add it"));
            }
        }
    }
    findings
}

fn dev_only_packages(metadata: &Metadata) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in SHIPPED {
        let reachable = metadata.reachable(package);
        for dev_only in DEV_ONLY.iter().filter(|name| reachable.contains(**name)) {
            let what = format!("{package} ships the test helper {dev_only}");
            findings.push(finding(1, &what, "make it a dev-dependency"));
        }
    }
    findings
}

fn compare_graph(metadata: &Metadata, rows: &[GraphRow]) -> Vec<TidyFinding> {
    let mut told: BTreeMap<&str, (usize, BTreeSet<String>)> = BTreeMap::new();
    for (line, cells) in rows {
        told.insert(&cells[0], (*line, names(cells.get(1))));
    }
    let mut findings = Vec::new();
    for package in metadata.members() {
        let actual = metadata.workspace_dependencies(package);
        let row = format!("| {} | {} |", package.name, join(&actual));
        match told.remove(package.name.as_str()) {
            Some((_, expected)) if expected == actual => {}
            Some((line, _)) => {
                let what = format!("{} depends on {}", package.name, join(&actual));
                let instead = format!("remove the dependency, or write `{row}`");
                findings.push(finding(line, &what, &instead));
            }
            None => {
                let what = format!("the crate graph lacks {}", package.name);
                findings.push(finding(1, &what, &format!("add `{row}`")));
            }
        }
    }
    let gone = told.into_iter().map(|(name, (line, _))| {
        finding(line, &format!("there is no package {name}"), "remove its row")
    });
    findings.extend(gone);
    findings
}

fn forbidden_packages(metadata: &Metadata, rows: &[GraphRow]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (line, cells) in rows {
        let package = cells[0].as_str();
        if !metadata.members().any(|member| member.name == package) {
            findings.push(finding(*line, &format!("there is no package {package}"), "remove it"));
        }
        let reachable = metadata.reachable(package);
        let reason = cells.get(2).map_or("", String::as_str);
        for name in names(cells.get(1)).iter().filter(|name| reachable.contains(name.as_str())) {
            let what = format!("{package} reaches {name}, which is forbidden: {reason}");
            let instead = format!("find the edge with `cargo tree -p {package} -i {name}`");
            findings.push(finding(*line, &what, &instead));
        }
    }
    findings
}

/// Returns the rows of the table between the marks of `name`, without its head.
fn table(document: &str, name: &str) -> Option<Vec<GraphRow>> {
    let (open, close) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
    let lines: Vec<&str> = document.lines().map(str::trim).collect();
    let first = lines.iter().position(|line| *line == open)?;
    let last = lines.iter().position(|line| *line == close)?;
    let rows = (first..last).filter_map(|index| {
        let row = lines[index].strip_prefix('|')?.strip_suffix('|')?;
        let cells = row.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        Some((index + 1, cells))
    });
    // A Markdown table begins with its head and a rule of dashes.
    let is_rule =
        |row: &GraphRow| row.1.iter().all(|cell| cell.starts_with(['-', ':']) && cell != "-");
    let rows: Vec<GraphRow> = rows.collect();
    let body = rows.iter().position(is_rule).map_or(0, |rule| rule + 1);
    Some(rows[body..].to_vec())
}

/// Returns the names in a cell; `-` means none.
fn names(cell: Option<&String>) -> BTreeSet<String> {
    let words = cell.map(String::as_str).unwrap_or_default().split(',').map(str::trim);
    words.filter(|word| !word.is_empty() && *word != "-").map(str::to_owned).collect()
}

fn join(names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        return "-".to_owned();
    }
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn finding(line: usize, what: &str, instead: &str) -> TidyFinding {
    TidyFinding::new(DOCUMENT, line, "crate graph", what, instead)
}

#[cfg(test)]
mod tests {
    use super::super::metadata::tests::SAMPLE;
    use super::*;

    const GRAPH: &str = "<!-- crate-graph -->\n\
        | package | depends on |\n| --- | --- |\n\
        | core | - |\n| `cli` | core |\n| kit | - |\n\
        <!-- /crate-graph -->\n";
    const FORBIDDEN: &str = "<!-- forbidden -->\n\
        | package | must not reach | why |\n|---|---|---|\n\
        | core | tokio | no clock |\n\
        <!-- /forbidden -->\n";

    fn whats(document: &str) -> Vec<String> {
        let metadata = Metadata::parse(SAMPLE).unwrap();
        check(&metadata, Some(document)).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn the_document_is_needed_with_both_tables() {
        let metadata = Metadata::parse(SAMPLE).unwrap();
        assert_eq!(check(&metadata, None)[0].what, "the file is absent");
        assert_eq!(whats("# A\n").len(), 2);
        assert!(whats(&format!("{GRAPH}{FORBIDDEN}")).is_empty());
    }

    #[test]
    fn the_graph_must_be_told_as_it_is() {
        let check = |from, to| whats(&format!("{}{FORBIDDEN}", GRAPH.replace(from, to)));
        assert_eq!(check("| core | - |", "| core | kit |"), ["core depends on -"]);
        assert_eq!(check("| kit | - |\n", ""), ["the crate graph lacks kit"]);
        assert_eq!(check("| kit", "| old | - |\n| kit"), ["there is no package old"]);
    }

    #[test]
    fn forbidden_packages_are_found_far_away() {
        let row = FORBIDDEN.replace("| core | tokio |", "| cli | rand, log |");
        let what = "cli reaches log, which is forbidden: no clock";
        assert_eq!(whats(&format!("{GRAPH}{row}")), [what]);
    }

    #[test]
    fn test_helpers_do_not_ship() {
        let rename = |text: &str| text.replace("\"cli\"", "\"tenure-cli\"");
        let sample = rename(SAMPLE).replace("\"kit\"", "\"testkit\"");
        let dev = Metadata::parse(&sample).unwrap();
        assert!(dev_only_packages(&dev).is_empty());
        let normal = Metadata::parse(&sample.replace("{\"kind\": \"dev\"}", "{\"kind\": null}"));
        let findings = dev_only_packages(&normal.unwrap());
        assert_eq!(findings[0].what, "tenure-cli ships the test helper testkit");
    }
}
