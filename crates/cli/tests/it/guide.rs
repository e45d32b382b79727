//! Runs every command of the tutorial and the how-to pages, in order, as a reader would.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use testkit::{TEST_POSTGRES, psql, service};
use uuid::Uuid;

use crate::tenure::{Ran, Tenure};

/// Placeholder for the reader's database on the pages.
const DATABASE: &str = "postgres://USER:PASSWORD@HOST/DATABASE";

/// Address that servers listen on, on the pages.
const ADDRESS: &str = "127.0.0.1:8420";

/// One test per page.
macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                follow(include_str!(concat!("../../../../docs/", $page)));
            }
        )*
    };
}

pages! {
    tutorial: "tutorial.md",
    add_an_outside_watchdog: "how-to/add-an-outside-watchdog.md",
    choose_a_store: "how-to/choose-a-store.md",
    configure_a_service: "how-to/configure-a-service.md",
    connect_an_mcp_client: "how-to/connect-an-mcp-client.md",
    drain_a_host: "how-to/drain-a-host.md",
    encrypt_checkpoints: "how-to/encrypt-checkpoints.md",
    fence_postgres_writes: "how-to/fence-postgres-writes.md",
    follow_the_inbox: "how-to/follow-the-inbox.md",
    keep_the_state_of_any_program: "how-to/keep-the-state-of-any-program.md",
    move_from_a_cursor_file: "how-to/move-from-a-cursor-file.md",
    poll_targets: "how-to/poll-targets.md",
    restore_from_a_backup: "how-to/restore-from-a-backup.md",
    rotate_tokens: "how-to/rotate-tokens.md",
    run_one_job_on_many_hosts: "how-to/run-one-job-on-many-hosts.md",
    run_the_switchboard: "how-to/run-the-switchboard.md",
    send_heartbeats: "how-to/send-heartbeats.md",
    sign_checkpoints: "how-to/sign-checkpoints.md",
    submit_events_exactly_once: "how-to/submit-events-exactly-once.md",
    trust_instances: "how-to/trust-instances.md",
    upgrade: "how-to/upgrade.md",
    use_buckets: "how-to/use-buckets.md",
    watch_and_alert: "how-to/watch-and-alert.md",
}

#[test]
fn every_how_to_page_is_tested() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
    let mut pages: BTreeSet<String> =
        files.map(|name| format!("how-to/{}", name.into_string().unwrap())).collect();
    assert!(pages.remove("how-to/README.md"));
    pages.insert("tutorial.md".to_owned());
    assert_eq!(pages, PAGES.iter().map(|&page| page.to_owned()).collect());
}

/// Commands, and text that their output has to contain.
#[derive(Debug, Default)]
struct Block {
    commands: String,
    shown: Vec<String>,
    /// Whether only a soak runs it, because it needs a rare tool.
    soak: bool,
}

/// Set by `cargo xtask soak`: all blocks are run.
const SOAK: &str = "TENURE_SOAK";

/// Returns the fenced blocks of a page: `sh` is run (`sh soak` only in a soak), a following `text`
/// is expected in its output. Blocks in a list lose its indentation.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut inside, mut indent) = (None, 0);
    for line in page.lines() {
        let text = line.trim_start();
        match (inside, text) {
            (None, "```sh" | "```sh soak") => {
                indent = line.len() - text.len();
                blocks.push(Block { soak: text.ends_with("soak"), ..Block::default() });
                inside = Some("sh");
            }
            (None, "```text") => inside = Some("text"),
            // These blocks are not run.
            (None, "```" | "```json" | "```yaml" | "```ini" | "```python" | "```rust") => {
                inside = Some("other");
            }
            (None, other) => assert!(!other.starts_with("```"), "unknown block {other}"),
            (Some(_), "```") => inside = None,
            (Some("sh"), command) => {
                let block = blocks.last_mut().unwrap();
                block.commands.push_str(line.get(indent..).unwrap_or(command));
                block.commands.push('\n');
            }
            (Some("other"), _) => {}
            (Some(_), shown) => blocks.last_mut().unwrap().shown.push(shown.to_owned()),
        }
    }
    assert!(!blocks.is_empty());
    blocks
}

/// A PostgreSQL database of its own.
#[derive(Debug)]
struct Database {
    server: String,
    name: String,
}

impl Database {
    fn create(server: String) -> Self {
        let name = format!("page_{}", Uuid::new_v4().simple());
        psql(&server, &format!("CREATE DATABASE {name}")).unwrap();
        Self { server, name }
    }

    fn url(&self) -> String {
        format!("{}/{}", self.server.rsplit_once('/').unwrap().0, self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A failure does no harm: the server is removed with all its databases.
        let _ = psql(&self.server, &format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

/// Process groups of the shells. Dropping this ends the background jobs of a page.
#[derive(Debug, Default)]
struct Shells(Vec<u32>);

impl Shells {
    fn run(&mut self, mut shell: Command) -> Ran {
        let piped = shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child: Child = piped.process_group(0).spawn().unwrap();
        self.0.push(child.id());
        Ran::of(child.wait_with_output().unwrap())
    }
}

impl Drop for Shells {
    fn drop(&mut self) {
        for group in &self.0 {
            // A group without background jobs has already ended.
            let _ = Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).output();
        }
    }
}

fn follow(page: &str) {
    let Some(server) = service(TEST_POSTGRES) else { return };
    let database = Database::create(server);
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let tenure = Tenure::new();
    let mut shells = Shells::default();
    let binary = Path::new(env!("CARGO_BIN_EXE_tenure"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut exports = String::new();
    let soak = std::env::var_os(SOAK).is_some();
    for block in blocks(page).into_iter().filter(|block| soak || !block.soak) {
        let commands = block.commands.replace(DATABASE, &database.url()).replace(ADDRESS, &address);
        let script = format!("set -eu\n{exports}{commands}");
        let mut shell: Command = tenure.command_of("sh", &["-c", &script]);
        shell.env("PATH", &path);
        let ran = shells.run(shell);
        assert_eq!(ran.code, Some(0), "{commands}\n{ran:?}");
        for shown in &block.shown {
            assert!(ran.stdout.contains(shown), "{shown:?} is not in\n{ran:?}");
        }
        // Later blocks need the variables that earlier ones exported.
        let lines = commands.lines().filter(|line| line.starts_with("export "));
        exports.extend(lines.flat_map(|line| [line, "\n"]));
    }
}
