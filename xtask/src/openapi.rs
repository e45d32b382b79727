//! `cargo xtask soak openapi`: schemathesis makes requests from the switchboard's own description.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::wait_until;

use crate::run::{cargo, check};
use crate::servers::Servers;

/// As it was tried; it comes from PyPI.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";
/// What must hold of every answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method,\
    allow_header_conformance,negative_data_rejection";
const SECONDS: &str = "120";
const LIMIT: Duration = Duration::from_secs(60);

/// Both stores, two minutes each.
pub(crate) fn run() -> Result<()> {
    let servers = Servers::start()?;
    cargo(&["build", "--package", "tenure-cli"], &[], &[])?;
    let folder = PathBuf::from("target/tmp/openapi");
    fs::create_dir_all(&folder)?;
    let tool = install(&folder)?;
    let file = folder.join(format!("{}.db", std::process::id()));
    attack(&tool, &format!("sqlite:{}", file.display()), &folder)?;
    let postgres = format!("{}?schema=openapi", servers.postgres());
    attack(&tool, &postgres, &folder)
}

/// Into an environment of its own, once.
fn install(folder: &Path) -> Result<PathBuf> {
    let environment = folder.join("venv");
    let tool = environment.join("bin/schemathesis");
    if !tool.exists() {
        check(Command::new("python3").args(["-m", "venv"]).arg(&environment))
            .context("this needs Debian's python3-venv")?;
        check(Command::new(environment.join("bin/pip")).args(["install", "-q", SCHEMATHESIS]))?;
    }
    Ok(tool)
}

fn attack(tool: &Path, store: &str, folder: &Path) -> Result<()> {
    let log = folder.join("serve.err");
    let mut command = Command::new("target/debug/tenure");
    command.args(["--store", store, "serve", "--listen", "127.0.0.1:0"]).stdin(Stdio::null());
    let server = Server(command.stderr(File::create(&log)?).spawn()?);
    let address = || {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let (_, rest) = said.split_once("http://")?;
        rest.split(char::is_whitespace).next().map(str::to_owned)
    };
    wait_until("the switchboard listens", LIMIT, || address().is_some())?;
    let url = format!("http://{}/api/openapi.json", address().context("it listened before")?);
    let words = ["run", &url, "--checks", CHECKS, "--max-time", SECONDS, "--workers", "2"];
    let attacked = check(Command::new(tool).args(words).args(["--request-timeout", "60"]));
    drop(server);
    attacked
}

/// Ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
