//! `cargo xtask soak openapi`: schemathesis sends requests made from the switchboard's document.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::wait_until;

use crate::python;
use crate::run::{cargo, check, output};
use crate::servers::Servers;

/// Tested version, from PyPI.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";
/// Checks of every response.
///
/// Without `positive_data_acceptance`: OpenAPI cannot express that three headers are required
/// together, that a dead letter is still open, or that a token's scope allows an endpoint.
const CHECKS: [&str; 8] = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "negative_data_rejection",
];
/// Additional check with tokens: requests without one must be refused.
const CHECK_WITH_TOKENS: &str = "ignored_auth";
/// Setting for batches. Each item has its own outcome: the response to an invalid envelope is 202
/// with an error in its place, so a batch that violates the document is not always refused.
const NOT_FOR_BATCHES: &str = r#"
[[operations]]
include-name = "POST /api/switchboard/ingest/batch"
checks.negative_data_rejection.enabled = false
"#;
/// Serializer for JSON lines, which the tool does not have. A text is already such a body.
const HOOKS: &str = r#"
import schemathesis

@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
"#;
const DOCUMENT: &str = "crates/switchboard/tests/openapi.json";
const SECONDS: &str = "90";
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const TENURE: &str = "target/debug/tenure";

/// Tests both stores, without and with tokens.
pub(crate) fn run() -> Result<()> {
    let servers = Servers::start()?;
    cargo(&["build", "--package", "tenure-cli"], &[], &[])?;
    let folder = PathBuf::from("target/tmp/openapi");
    fs::create_dir_all(&folder)?;
    // The tool runs in this folder, where it stores its state.
    let folder = fs::canonicalize(folder)?;
    let tool = python::environment(&[SCHEMATHESIS])?.join("bin/schemathesis");
    let id = std::process::id();
    for (n, with_tokens) in [false, true].into_iter().enumerate() {
        let file = folder.join(format!("{id}-{n}.db"));
        attack(&tool, &format!("sqlite:{}", file.display()), &folder, with_tokens)?;
        let postgres = format!("{}?schema=openapi_{n}", servers.postgres());
        attack(&tool, &postgres, &folder, with_tokens)?;
    }
    Ok(())
}

fn attack(tool: &Path, store: &str, folder: &Path, with_tokens: bool) -> Result<()> {
    let mut document = fs::read_to_string(DOCUMENT)?;
    let mut header = Vec::new();
    let mut checks = CHECKS.to_vec();
    if with_tokens {
        // Tokens are optional in the document; once there are tokens, they are required.
        let mut required: serde_json::Value = serde_json::from_str(&document)?;
        let security =
            required["security"].as_array_mut().context("the document has no `security`")?;
        ensure!(security.pop() == Some(serde_json::json!({})), "the document requires a token");
        document = required.to_string();
        header = vec!["--header".to_owned(), format!("Authorization: Bearer {}", token(store)?)];
        checks.push(CHECK_WITH_TOKENS);
    }
    let told = folder.join("openapi.json");
    fs::write(&told, document)?;
    fs::write(folder.join("hooks.py"), HOOKS)?;
    let checks: String = checks.iter().map(|check| format!("{check}.enabled = true\n")).collect();
    let settings = format!("[checks]\nenabled = false\n{checks}{NOT_FOR_BATCHES}");
    fs::write(folder.join("schemathesis.toml"), settings)?;
    let log = folder.join("serve.err");
    let mut command = Command::new(TENURE);
    // The requests test missing tokens, not the limit on failed authentication.
    command.args(["--store", store, "serve", "--listen", "127.0.0.1:0"]);
    command.args(["--auth-failures", "1000000"]).stdin(Stdio::null());
    let server = ServeProcess(command.stderr(File::create(&log)?).spawn()?);
    let address = || {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let (_, rest) = said.split_once("http://")?;
        let (address, _) = rest.split_once(char::is_whitespace)?;
        Some(address.to_owned())
    };
    wait_until("the switchboard listens", READY_TIMEOUT, || address().is_some())?;
    let url = format!("http://{}", address().context("the switchboard printed no address")?);
    let words = ["--url", &url, "--max-time", SECONDS, "--workers", "2"];
    let mut attack = Command::new(tool);
    attack
        .current_dir(folder)
        .env("SCHEMATHESIS_HOOKS", "hooks.py")
        .arg("run")
        .arg(told)
        .args(header);
    attack.args(words).args(["--request-timeout", "60", "--continue-on-failure"]);
    let attacked = check(&mut attack);
    drop(server);
    attacked
}

/// Creates a token with all roles for one endpoint, that of the document's examples.
fn token(store: &str) -> Result<String> {
    let mut command = Command::new(TENURE);
    command.args(["--store", store, "token", "create", "--channel", "telegram"]);
    command.args(["--provider", "telegram", "--endpoint", "test_bot"]);
    command.args(["--role", "ingest", "--role", "read", "--role", "admin"]);
    Ok(output(&mut command)?.trim().to_owned())
}

/// Server that is killed on drop.
struct ServeProcess(Child);

impl Drop for ServeProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
