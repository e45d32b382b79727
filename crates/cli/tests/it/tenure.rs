//! Helpers that run the command and prepare stores.

use std::fmt::Debug;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tenure_core::store::{ClaimRequest, Claimed, OpenSession};
use tenure_core::{DutyKey, Hold, InstanceId, Note, Reason, Session, Store, Ttl};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};

/// A folder to run the command in, without the variables of the test's environment.
#[derive(Debug)]
pub struct Tenure {
    folder: TempDir,
}

/// Result of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Tenure {
    pub fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the URL of a SQLite store in the folder.
    pub fn sqlite(&self, name: &str) -> String {
        format!("sqlite:{}", self.path(name).display())
    }

    pub fn command(&self, words: &[&str]) -> Command {
        // Recordings are made with the binary of another version.
        let program = std::env::var("TENURE_TEST_BINARY");
        let program = program.unwrap_or(env!("CARGO_BIN_EXE_tenure").to_owned());
        self.command_of(&program, words)
    }

    pub fn command_of(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).current_dir(self.folder.path());
        let ours = |name: &str| {
            let published = ["CONNECTOR_", "REDIS_", "PORT", "LOG_", "DATABASE_URL", "ETCD_"];
            let published = published.into_iter().chain(["NO_COLOR", "CLICOLOR"]);
            published.into_iter().any(|start| name.starts_with(start))
                || name.starts_with("TENURE_") && !name.starts_with("TENURE_TEST_")
        };
        for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
            command.env_remove(name);
        }
        command
    }

    pub fn run(&self, words: &[&str]) -> Ran {
        Ran::of(self.command(words).output().unwrap())
    }
}

impl Ran {
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Checks that the run succeeded; returns standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Checks that the run succeeded; returns the JSON document that it printed.
    #[track_caller]
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// Checks that the run failed with this code, kept everything and printed a hint.
    #[track_caller]
    pub fn refused(&self, code: &str) {
        let exit = match code {
            // The argument is invalid, whatever the command.
            "ST001" | "ST011" | "ST024" | "CF001" | "CF002" => 2,
            "ST031" => 5,
            _ => 1,
        };
        self.refused_with(code, exit);
    }

    #[track_caller]
    pub fn refused_with(&self, code: &str, exit: i32) {
        assert_eq!((self.code, self.stdout.as_str()), (Some(exit), ""), "{self:?}");
        let lines: Vec<&str> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 3, "{self:?}");
        assert!(lines[0].starts_with(&format!("{code}: ")), "{self:?}");
        assert_eq!(lines[1], "kept: nothing was changed");
        assert!(lines[2].starts_with("hint: "), "{self:?}");
        assert!(lines[2].ends_with(&format!("; see `tenure errors {code}`")), "{self:?}");
    }

    /// Checks that the output does not contain a secret.
    #[track_caller]
    pub fn hides(&self, secret: &str) {
        assert!(!self.stdout.contains(secret) && !self.stderr.contains(secret), "{self:?}");
    }
}

/// Runs operations on a store from this process; creates the store if it is missing.
pub fn with_store<T: Debug>(url: &str, work: impl AsyncFnOnce(Arc<dyn Store>) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = StoreUrl::parse(url).unwrap();
        work(url.open(IfAbsent::Create, process::entropy()).await.unwrap()).await
    })
}

/// Joins a group with a TTL longer than any test.
pub async fn join(store: &dyn Store, group: &str, instance: &str, note: &str) -> Session {
    join_for(store, group, instance, note, Duration::from_secs(600)).await
}

pub async fn join_for(
    store: &dyn Store,
    group: &str,
    instance: &str,
    note: &str,
    ttl: Duration,
) -> Session {
    let open = OpenSession {
        group: tenure_core::GroupName::new(group).unwrap(),
        instance: InstanceId::new(instance).unwrap(),
        nonce: process::fresh_nonce(),
        ttl: Ttl::new(ttl).unwrap(),
        note: Note::new(note).unwrap(),
    };
    store.open_session(&open).await.unwrap();
    open.session()
}

pub async fn claim(store: &dyn Store, session: &Session, id: &str) -> Hold {
    let duty = DutyKey::new(session.group.as_str(), id).unwrap();
    let why = Reason::new("test").unwrap();
    match store.claim(session, &[ClaimRequest::new(duty)], &why).await.unwrap().remove(0) {
        Claimed::Granted(hold) => hold,
        other => panic!("{other:?}"),
    }
}

pub async fn release(store: &dyn Store, session: &Session, hold: Hold) {
    store.release(session, &[hold], &Reason::new("test").unwrap()).await.unwrap();
}
