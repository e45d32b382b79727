//! `cargo xtask check`: a quick answer after an edit, about the packages that were edited.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::programs::{self, Incremental};
use crate::run::{cargo, check, command_as_typed, output, step};
use crate::tidy::{self, workspace};

/// Branch that changes are compared with.
const MAIN: &str = "main";

/// Files that decide how every package is built.
const OF_ALL: &[&str] =
    &["Cargo.toml", "Cargo.lock", "clippy.toml", "rustfmt.toml", ".cargo/config.toml"];

/// Packages whose unit tests read the folder `docs`.
const READERS_OF_DOCS: &[&str] = &["tenure-cli", "tenure-core"];

/// Checks the style of everything; lints edited packages and runs their unit tests.
pub(crate) fn run() -> Result<()> {
    let root = workspace()?;
    let files = edited(&root)?;
    let (packages, others) = packages(&files, |folder| manifest(&root, folder));
    step("fmt", "cargo fmt --all", || cargo(&["fmt", "--all", "--", "--check"], &[], &[]))?;
    step("tidy", "cargo xtask tidy", tidy::run)?;
    for package in &packages {
        step(package, "cargo xtask check", || unit_tests(package))?;
    }
    let list = |names: &mut dyn Iterator<Item = &str>| names.collect::<Vec<_>>().join(", ");
    eprintln!("checked: {}", list(&mut packages.iter().map(String::as_str)));
    let (of_all, others): (Vec<_>, Vec<_>) = others.iter().partition(|file| OF_ALL.contains(file));
    if !of_all.is_empty() {
        let files = list(&mut of_all.into_iter());
        eprintln!("of every package: {files}; run `cargo xtask test`");
    }
    if !others.is_empty() {
        eprintln!("of no package: {}", list(&mut others.into_iter()));
    }
    eprintln!(
        "not run: tests in `tests` folders, examples in comments, packages that depend on these, \
         smaller feature sets; they are in `cargo xtask test`"
    );
    Ok(())
}

/// Lints and builds all targets of a package as the test command does, and runs its unit tests.
fn unit_tests(package: &str) -> Result<()> {
    let words = ["test", "--no-run", "--all-features", "--package", package];
    let built = programs::build(&words, Incremental::Yes)?;
    let mut units = built.iter().filter(|program| program.is_test && program.is_unit);
    units.try_for_each(|program| {
        let folder = &program.folder;
        check(
            command_as_typed(&program.path)
                .arg("--quiet")
                .current_dir(folder)
                .env("CARGO_MANIFEST_DIR", folder),
        )
    })
}

/// Returns the files that differ from where this branch left main, and those not yet tracked.
fn edited(root: &Path) -> Result<Vec<PathBuf>> {
    let git = |words: &[&str]| output(Command::new("git").current_dir(root).args(words));
    let base = git(&["merge-base", "HEAD", MAIN]).unwrap_or_else(|_| "HEAD".to_owned());
    let changed = git(&["diff", "--name-only", "--no-renames", "-z", base.trim()])?;
    let new = git(&["ls-files", "-z", "--others", "--exclude-standard"])?;
    Ok(changed
        .split_terminator('\0')
        .chain(new.split_terminator('\0'))
        .map(PathBuf::from)
        .collect())
}

/// Returns the packages that contain these files, and the files that no package contains.
fn packages(
    files: &[PathBuf],
    package: impl Fn(&Path) -> Option<String>,
) -> (BTreeSet<String>, Vec<&str>) {
    let (mut packages, mut others) = (BTreeSet::new(), Vec::new());
    for file in files {
        match file.ancestors().skip(1).find_map(&package) {
            Some(name) => drop(packages.insert(name)),
            None if file.starts_with("docs") => {
                packages.extend(READERS_OF_DOCS.iter().map(|name| (*name).to_owned()));
            }
            None => others.extend(file.to_str()),
        }
    }
    (packages, others)
}

/// Returns the name of the package of the workspace in this folder.
fn manifest(root: &Path, folder: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join(folder).join("Cargo.toml")).ok()?;
    let is_member = !text.lines().any(|line| line == "[workspace]");
    let line = text.lines().find_map(|line| line.strip_prefix("name = "))?;
    is_member.then(|| line.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_of_the_package_around_it() {
        let files = ["crates/core/src/a/b.rs", "crates/core/tests/c.rs", "sim/Cargo.toml"];
        let files: Vec<PathBuf> = files
            .iter()
            .chain(&["docs/README.md", "a/b.md", "Cargo.lock"])
            .map(PathBuf::from)
            .collect();
        let named = |folder: &Path| match folder.to_str() {
            Some("crates/core") => Some("tenure-core".to_owned()),
            Some("sim") => Some("tenure-sim".to_owned()),
            _ => None,
        };
        let (packages, others) = packages(&files, named);
        assert_eq!(
            packages.iter().collect::<Vec<_>>(),
            ["tenure-cli", "tenure-core", "tenure-sim"]
        );
        assert_eq!(others, ["a/b.md", "Cargo.lock"]);
    }

    #[test]
    fn the_workspace_and_the_fuzz_targets_are_no_packages() {
        let root = workspace().unwrap();
        assert_eq!(manifest(&root, Path::new("crates/core")).unwrap(), "tenure-core");
        assert_eq!(manifest(&root, Path::new("")), None);
        assert_eq!(manifest(&root, Path::new("fuzz")), None);
        assert_eq!(manifest(&root, Path::new("docs")), None);
    }
}
