//! Programs of the workspace, linted and built in one pass.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::run::as_typed;
use crate::tidy::workspace;

/// All features of the workspace, as for the tests, so that nothing is compiled twice.
pub(crate) const ALL: &[&str] = &["--workspace", "--all-features"];

/// Program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) package: String,
    pub(crate) target: String,
    /// Folder of the package, where its tests run.
    pub(crate) folder: PathBuf,
    pub(crate) path: PathBuf,
    /// Whether it is a harness of tests.
    pub(crate) is_test: bool,
    /// Whether it was built from the sources of a library or program, not of a `tests` folder.
    pub(crate) is_unit: bool,
}

/// Whether to save what makes the next build after an edit faster. It makes this one slower, and
/// writes two gigabytes: not worth it in a clean checkout.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incremental {
    Yes,
    No,
}

/// Variables that let cargo build with clippy's driver instead of the compiler: it is the same
/// compiler, which lints too. Every warning is an error.
pub(crate) fn linted(incremental: Incremental) -> Result<[(&'static str, String); 3]> {
    let driver = cargo_path().with_file_name("clippy-driver");
    ensure!(driver.exists(), "{} is missing; `rustup component add clippy`", driver.display());
    Ok([
        ("RUSTC_WORKSPACE_WRAPPER", driver.display().to_string()),
        // The separator of the words is the one that `cargo clippy` uses.
        ("CLIPPY_ARGS", ["-D", "warnings", ""].join("__CLIPPY_HACKERY__")),
        ("CARGO_INCREMENTAL", u8::from(incremental == Incremental::Yes).to_string()),
    ])
}

/// Lints and builds with the words for cargo, and returns the programs.
pub(crate) fn build(words: &[&str], incremental: Incremental) -> Result<Vec<Program>> {
    let mut command = Command::new(cargo_path());
    let command = as_typed(&mut command)
        .current_dir(workspace()?)
        .args(words)
        .arg("--message-format=json-render-diagnostics")
        .envs(linted(incremental)?)
        .stderr(Stdio::inherit());
    let done = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(done.status.success(), "cargo {} ended with {}", words.join(" "), done.status);
    let said = String::from_utf8(done.stdout)?;
    said.lines().filter_map(|line| read(line).transpose()).collect()
}

/// Lints and builds all targets of the workspace with all features, as the tests need them.
pub(crate) fn build_all() -> Result<Vec<Program>> {
    build(&[&["test", "--no-run"][..], ALL].concat(), Incremental::No)
}

/// Reads a message of cargo; `None` if it is not about a program.
fn read(line: &str) -> Result<Option<Program>> {
    let json: Value = serde_json::from_str(line)?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let Some(path) = text(&json["executable"]) else { return Ok(None) };
    let of_package = || {
        let manifest = PathBuf::from(text(&json["manifest_path"])?);
        let folder = manifest.parent()?.to_owned();
        Some((package_of(&text(&json["package_id"])?)?, folder))
    };
    let (package, folder) = of_package().with_context(|| format!("not a program: {line}"))?;
    Ok(Some(Program {
        package,
        target: text(&json["target"]["name"]).unwrap_or_default(),
        folder,
        path: PathBuf::from(path),
        is_test: json["profile"]["test"] == true,
        is_unit: json["target"]["kind"] != json!(["test"]),
    }))
}

/// Returns the name in a package id, as in `path+file:///folder/cli#tenure-cli@0.1.0`; without a
/// name, it is the folder's.
fn package_of(id: &str) -> Option<String> {
    let (url, rest) = id.rsplit_once('#')?;
    let name = match rest.split_once('@') {
        Some((name, _)) => name,
        None => url.rsplit('/').next()?,
    };
    Some(name.to_owned())
}

pub(crate) fn cargo_path() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| Path::new("cargo").to_owned(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_program_and_package() {
        let line = r#"{"reason":"compiler-artifact",
            "package_id":"path+file:///w/sim#tenure-sim@0.1.0",
            "manifest_path":"/w/sim/Cargo.toml",
            "target":{"kind":["test"],"name":"seeds"},"profile":{"test":true},
            "executable":"/w/target/debug/deps/seeds-1"}"#;
        let program = read(line).unwrap().unwrap();
        assert_eq!((program.package.as_str(), program.target.as_str()), ("tenure-sim", "seeds"));
        assert_eq!(program.folder, Path::new("/w/sim"));
        assert!(program.is_test && !program.is_unit);
        assert_eq!(read(r#"{"reason":"build-finished","success":true}"#).unwrap(), None);
    }

    #[test]
    fn a_package_that_is_named_as_its_folder_is_not_named_again() {
        assert_eq!(package_of("path+file:///w/xtask#0.1.0").unwrap(), "xtask");
        assert_eq!(package_of("path+file:///w/crates/cli#tenure-cli@0.1.0").unwrap(), "tenure-cli");
    }
}
