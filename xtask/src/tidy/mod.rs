//! Style checks: every check runs over the tracked files, and every finding is printed.

mod banned;
mod documents;
mod exceptions;
mod graph;
mod layout;
mod length;
mod licences;
mod log_messages;
mod machine_paths;
mod map;
mod metadata;
mod mutants;
mod names;
mod rules;
mod source;
mod todo;

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use self::metadata::Metadata;
use self::source::Rust;
use crate::run::output;

/// A tracked text file.
pub(crate) struct File {
    /// Path relative to the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Views of a Rust file.
    rust: Option<Rust>,
}

impl File {
    pub(crate) fn new(path: &str, text: String) -> Self {
        let rust = path.ends_with(".rs").then(|| Rust::parse(&text));
        Self { path: path.to_owned(), text, rust }
    }

    fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// Whether the whole file is compiled only for tests; a table of mutants is.
    fn is_test(&self) -> bool {
        let mut names = self.path.split('/');
        names.any(|name| ["tests", "tests.rs", "mutants.rs"].contains(&name))
    }

    /// Whether the file ships: the sources of the crates, except files that contain only tests.
    fn is_product(&self) -> bool {
        let mut names = self.path.split('/');
        let in_sources = names.next() == Some("crates") && names.nth(1) == Some("src");
        in_sources && !self.is_test()
    }
}

/// A violated rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TidyFinding {
    path: String,
    line: usize,
    /// Subject that an exception names: a function, a banned call, a rule.
    subject: String,
    what: String,
    instead: String,
}

impl TidyFinding {
    fn new(path: &str, line: usize, subject: &str, what: &str, instead: &str) -> Self {
        Self {
            path: path.to_owned(),
            line,
            subject: subject.to_owned(),
            what: what.to_owned(),
            instead: instead.to_owned(),
        }
    }
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, instead, .. } = self;
        write!(formatter, "{path}:{line}: {what}; {instead}")
    }
}

/// Checks that look at one file at a time.
const FILE_CHECKS: &[fn(&File) -> Vec<TidyFinding>] = &[
    layout::check,
    length::check,
    banned::check,
    todo::check,
    log_messages::check,
    names::check,
    mutants::check,
];

/// Runs every check; fails with the number of findings after printing each.
pub(crate) fn run() -> Result<()> {
    let root = workspace()?;
    let files = tracked_files(&root)?;
    let forbidden = machine_paths::of_this_machine(&root);
    let mut findings = Vec::new();
    for file in &files {
        findings.extend(FILE_CHECKS.iter().flat_map(|check| check(file)));
        findings.extend(documents::check(file, |path| root.join(path).exists()));
        findings.extend(machine_paths::check(file, &forbidden));
    }
    findings.extend(names::check_types(&files));
    findings.extend(map::check(&files, |path| root.join(path).exists()));
    findings.extend(rules::check(&files, |path| root.join(path).exists()));
    let metadata = Metadata::read(&root)?;
    findings.extend(graph::check(&metadata, text_of(&files, graph::DOCUMENT)));
    findings.extend(licences::check(&metadata, text_of(&files, licences::POLICY)));
    let mut findings = exceptions::apply(findings, exceptions::EXCEPTIONS);
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    ensure!(findings.is_empty(), "{} findings", findings.len());
    Ok(())
}

fn text_of<'a>(files: &'a [File], path: &str) -> Option<&'a str> {
    files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
}

/// Returns the workspace that this program was started from.
pub(crate) fn workspace() -> Result<PathBuf> {
    let package = env::var_os("CARGO_MANIFEST_DIR").context("run this with `cargo xtask`")?;
    let root = Path::new(&package).parent().context("xtask is not in a workspace")?;
    Ok(root.to_owned())
}

/// Folder of stores as earlier versions wrote them: they are not edited.
const FIXTURES: &str = "/tests/formats/";

/// Returns the text files that git tracks or would add, without deleted files and fixtures.
pub(crate) fn tracked_files(root: &Path) -> Result<Vec<File>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listing = output(Command::new("git").current_dir(root).args(arguments))?;
    let paths = listing.split_terminator('\0').filter(|path| !path.contains(FIXTURES));
    let read = |path| Some(File::new(path, fs::read_to_string(root.join(path)).ok()?));
    Ok(paths.filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_place_fault_and_remedy() {
        let finding = TidyFinding::new("a.rs", 3, "x", "a bad thing", "do the good thing");
        assert_eq!(finding.to_string(), "a.rs:3: a bad thing; do the good thing");
    }

    #[test]
    fn product_code_is_told_from_tests() {
        let is_product = |path| File::new(path, String::new()).is_product();
        assert!(is_product("crates/core/src/lib.rs"));
        assert!(!is_product("crates/core/src/lease/tests.rs"));
        assert!(!is_product("crates/core/tests/it/main.rs"));
        assert!(!is_product("xtask/src/main.rs"));
    }
}
