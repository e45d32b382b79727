//! Python programs for the tests, each in an environment of its own below `target`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use testkit::{TEST_CRON, TEST_MCP_1, TEST_MCP_2};

use crate::run::{check, output};
use crate::servers::install_all;

/// Tested versions, from PyPI.
const MCP_1: &[&str] = &["mcp==1.30.0", "fastmcp==3.4.10"];
const MCP_2: &[&str] = &["mcp==2.3.0"];
/// Other implementations of cron expressions, and time zones for a machine without them.
const CRON: &[&str] = &["croniter==7.0.0", "cronsim==2.8", "tzdata==2026.6"];
/// File in an environment that is complete.
const DONE: &str = "complete";

/// Returns the variables by which the tests find a Python with the packages that they need.
pub(crate) fn interpreters() -> Result<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    for (name, packages) in [(TEST_MCP_1, MCP_1), (TEST_MCP_2, MCP_2), (TEST_CRON, CRON)] {
        let python = environment(packages)?.join("bin/python");
        found.push((name, python.display().to_string()));
    }
    Ok(found)
}

/// Held while an environment is created: the second that asks for it finds it complete.
static CREATING: Mutex<()> = Mutex::new(());

/// Creates an environment with these packages, unless it exists.
pub(crate) fn environment(packages: &[&str]) -> Result<PathBuf> {
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = PathBuf::from("target/python");
    fs::create_dir_all(&folder)?;
    let environment = fs::canonicalize(folder)?.join(packages.join("_").replace("==", "-"));
    if environment.join(DONE).exists() {
        return Ok(environment);
    }
    // The Debian package contains no program, so its module is checked.
    if output(Command::new("python3").args(["-c", "import ensurepip"])).is_err() {
        install_all(&["python3", "python3-venv"])?;
    }
    check(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    check(Command::new(environment.join("bin/pip")).args(["install", "-q"]).args(packages))?;
    fs::write(environment.join(DONE), "")?;
    Ok(environment)
}
