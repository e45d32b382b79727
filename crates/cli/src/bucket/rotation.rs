//! One step of a rotation: what is read, what is chosen, what is written.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};
use tenure_core::bucket::{Field, Invalid, Total};
use tenure_core::store::Checkpoint;
use tenure_core::{Code, Document, StoreError};
use tenure_duty::Guard as Hold;
use tenure_operate::{nothing_happened, replace};
use tenure_supervise::observe::LogLevel as Level;
use tenure_wire::bucket::{
    AppliedBucket, CommitTiming, Config, Executed, Notice, STATE, apply, carry_over,
};
use tenure_wire::object::Object;

use super::next::Print;
use super::refused;
use crate::env;
use crate::failure::Failure;
use crate::output::{shown, to_stderr, to_stdout};

/// The largest config or state.
const MOST_BYTES: u64 = 64 << 20;

/// What stands when the store did not take the step.
const NOT_RUN: &str = "nothing was run; whether the rotation went on, the next run finds out";
/// What stands when the state file could not be replaced.
const WHOLE: &str = "nothing was run; the state file is the old one or the new one, and whole";
/// What stands when the step could not be shown.
const NOT_SHOWN: &str = "the bucket counts as executed, and was not shown: it comes in its turn";
/// What stands when a run succeeded and that could not be noted.
const RUN_AGAIN: &str = "the run has succeeded, and that is not noted: its bucket comes again";
/// What stands when nobody knows whether it was noted.
const PERHAPS_AGAIN: &str = "the run has succeeded; whether that is noted, the next run finds out";
/// What stands when only the state file could not be written after that.
const ONLY_IN_STORE: &str =
    "the run has succeeded, and the store says so; the state file is as it left it";

/// Where config and state are, and when a bucket counts as executed.
#[derive(Debug)]
pub(crate) struct Rotation {
    pub(super) config: PathBuf,
    pub(super) state: PathBuf,
    pub(super) commit: CommitTiming,
    pub(super) write: bool,
    /// The store keeps it, too.
    pub(super) held: bool,
    pub(super) print: Print,
    pub(super) json: bool,
}

/// A step that was made: the run may begin.
#[derive(Debug)]
pub(crate) struct Step {
    applied: AppliedBucket,
    /// The bucket of the run, chosen or set.
    id: u32,
    total: Total,
    /// What the store keeps of the rotation, before the step.
    kept: Option<Object>,
    /// What a log is to say.
    pub(crate) told: Vec<Told>,
}

/// A line for a log.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) level: Level,
    pub(crate) text: String,
}

impl Told {
    fn info(text: impl Into<String>) -> Self {
        Self { level: Level::Info, text: text.into() }
    }
}

impl From<&Notice> for Told {
    fn from(notice: &Notice) -> Self {
        let level = if notice.is_warning() { Level::Warn } else { Level::Info };
        Self { level, text: notice.to_string() }
    }
}

impl Step {
    /// The bucket of the run as a command finds it: two variables, and two files in a folder.
    pub(crate) fn hand_over(&self, folder: &Path) -> Result<Vec<(String, OsString)>, Failure> {
        let write = |name: &str, content: &Object| -> Result<OsString, Failure> {
            let path = folder.join(name);
            // There may be secrets in it.
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            let written = options
                .open(&path)
                .and_then(|mut file| file.write_all(content.as_str().as_bytes()));
            written.with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path.into())
        };
        let state = self.applied.state.clone().unwrap_or_default();
        Ok([
            (env::BUCKET_ID, self.id.to_string().into()),
            (env::BUCKET_TOTAL, self.total.to_string().into()),
            (env::BUCKET_CONFIG, write("config.json", &self.applied.config)?),
            (env::BUCKET_STATE, write("state.json", &state)?),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into())
    }
}

impl Rotation {
    /// The step of a worker that is alone.
    pub(super) fn step(&self) -> Result<Step, Failure> {
        let step = self.choose(None)?;
        self.write_state(&step)?;
        Ok(step)
    }

    /// The step under a hold: what ran last is in the store, and nobody else can say otherwise.
    pub(crate) async fn step_under(&self, hold: &Hold) -> Result<Step, Failure> {
        let kept = hold.load().await.map_err(nothing_happened)?;
        let kept = kept.map(|last| record_of(hold, &last)).transpose()?;
        let step = self.choose(kept)?;
        // The file comes first: what it says does not count once the store has said something.
        self.write_state(&step)?;
        if let Some(executed) = self.executed(&step, CommitTiming::AtStart) {
            let committed = hold.commit(document(&executed.record(step.kept.clone()))?).await;
            committed.map_err(|error| Failure::Kept { error, kept: NOT_RUN })?;
        }
        Ok(step)
    }

    /// The run of a step has succeeded.
    pub(crate) async fn succeeded(&self, step: &Step, hold: &Hold) -> Result<(), Failure> {
        let Some(executed) = self.executed(step, CommitTiming::OnSuccess) else { return Ok(()) };
        let committed = hold.commit(document(&executed.record(step.kept.clone()))?).await;
        committed.map_err(|error| {
            let kept = if error.is_unknown() { PERHAPS_AGAIN } else { RUN_AGAIN };
            Failure::Kept { error, kept }
        })?;
        if self.write {
            // The run may have written more of its own since.
            let written = read_state(&self.state);
            let written = written.and_then(|now| self.replace_state(&executed.record(now)));
            written.map_err(|failure| failure.keeping(ONLY_IN_STORE))?;
        }
        Ok(())
    }

    /// Whether the bucket of a step counts as executed, whatever becomes of its run.
    pub(crate) fn is_noted(&self, step: &Step) -> bool {
        self.executed(step, CommitTiming::AtStart).is_some()
    }

    /// Whether a step is made again when its run does not succeed.
    pub(crate) fn waits_for_success(&self, step: &Step) -> bool {
        self.executed(step, CommitTiming::OnSuccess).is_some()
    }

    /// The bucket of a step, if this is when it counts as executed.
    fn executed(&self, step: &Step, when: CommitTiming) -> Option<Executed> {
        step.applied.executed.filter(|_| self.commit == when)
    }

    /// Refuses a config that cannot be used, before anybody waits for anything.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        read_settings(&read_present(&self.config)?).map(drop)
    }

    fn choose(&self, kept: Option<Object>) -> Result<Step, Failure> {
        let config = read_present(&self.config)?;
        let Config { id, total, round_robin, .. } = read_settings(&config)?;
        if self.write && self.state.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(unusable(&self.state, "it is no file that could be replaced"));
        }
        let mut state = read_state(&self.state)?;
        let mut told = Vec::new();
        if round_robin {
            match &kept {
                Some(kept) => state = Some(carry_over(kept, state)),
                None if state.is_none() => {
                    let path = self.state.display();
                    told.push(Told::info(format!("no state in {path}: the rotation begins")));
                }
                None => {}
            }
        }
        let expected = self.write || self.held;
        if expected && !round_robin {
            let text = format!("no rotation in {}: always bucket {id}", self.config.display());
            told.push(Told::info(text));
        }
        let applied = apply(config, state, self.commit).map_err(|invalid| bad(&invalid))?;
        told.extend(applied.notices.iter().map(Told::from));
        if self.write && !self.held && self.commit == CommitTiming::OnSuccess {
            let text = "--write leaves the state as it is: nobody tells whether the run succeeds";
            told.push(Told { level: Level::Warn, text: format!("{text}; keep state_on_success") });
        }
        let id = applied.executed.map_or(id, |executed| executed.bucket);
        Ok(Step { applied, id, total, kept, told })
    }

    /// Writes the state of a step, if it is a new one and wanted.
    fn write_state(&self, step: &Step) -> Result<(), Failure> {
        match (&step.applied.state, self.executed(step, CommitTiming::AtStart)) {
            (Some(state), Some(_)) if self.write => {
                self.replace_state(state).map_err(|failure| failure.keeping(WHOLE))
            }
            _ => Ok(()),
        }
    }

    /// Prints a step, for whoever runs with it.
    pub(crate) fn print(&self, step: &Step) -> Result<(), Failure> {
        let whole = self.print == Print::All;
        if !(self.json && whole) {
            for Told { level, text } in &step.told {
                let warning = if *level == Level::Warn { "warning: " } else { "" };
                to_stderr(&format!("{warning}{}", shown(text)));
            }
        }
        let AppliedBucket { config, state, .. } = &step.applied;
        let state = state.as_ref().map_or("null", |state| state.as_str().trim());
        let text = match self.print {
            Print::All => self.document(step, state),
            Print::Config => config.as_str().trim().to_owned(),
            Print::State => state.to_owned(),
            Print::Id => step.id.to_string(),
        };
        let printed = to_stdout(&(text + "\n")).context("cannot write to standard output");
        let noted = self.is_noted(step) && (self.write || self.held);
        match noted {
            true => printed.map_err(|error| Failure::from(error).keeping(NOT_SHOWN)),
            false => printed.map_err(Failure::from),
        }
    }

    /// Config and state in one document, each in its own words.
    fn document(&self, step: &Step, state: &str) -> String {
        // No string has a line break in it, so this moves nothing but blanks.
        let inside = |text: &str| text.trim().replace('\n', "\n  ");
        let config = inside(step.applied.config.as_str());
        let mut text = format!("{{\n  \"config\": {config},\n  \"state\": {}", inside(state));
        if let Some(executed) = self.executed(step, CommitTiming::OnSuccess) {
            let later = executed.record(step.applied.state.clone());
            text += &format!(",\n  \"state_on_success\": {}", inside(later.as_str()));
        }
        if self.json {
            let notices = step.told.iter().map(
                |Told { level, text }| json!({ "warning": *level == Level::Warn, "text": text }),
            );
            text += &format!(",\n  \"notices\": {}", Value::from_iter(notices));
        }
        text + "\n}"
    }

    fn replace_state(&self, state: &Object) -> Result<(), Failure> {
        let mut text = state.as_str().to_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let written = replace(&self.state, text.as_bytes());
        written.with_context(|| format!("cannot write {}", self.state.display()))?;
        Ok(())
    }
}

/// What a store keeps of a rotation.
fn record_of(hold: &Hold, last: &Checkpoint) -> Result<Object, Failure> {
    let text = std::str::from_utf8(last.document.as_bytes()).ok();
    let record = text.and_then(|text| Object::read(text).ok());
    let record = record.filter(|record| record.get(STATE).is_some());
    record.ok_or_else(|| {
        let (duty, version) = (hold.duty(), last.version);
        let detail = format!("the checkpoint of {duty}, version {version}, has no {STATE}");
        refused(Code::NoRotation, detail)
    })
}

fn document(record: &Object) -> Result<Document, StoreError> {
    Document::new(record.as_str())
}

/// The settings of a run: what a rotation has not chosen yet is none.
pub(super) fn read_run(path: &Path) -> Result<Config, Failure> {
    let config = read_present(path)?;
    let settings = read_settings(&config)?;
    if settings.round_robin && config.get(Field::Id.name()).is_none() {
        let detail = format!(
            "{}: it rotates, and has no bucket_id: take the config that `tenure bucket next` \
             prints, or --id and --total",
            path.display()
        );
        return Err(refused(Code::BadBucketing, detail));
    }
    Ok(settings)
}

/// Reads a JSON object from a file that has to be there.
fn read_present(path: &Path) -> Result<Object, Failure> {
    let text = read_text(path)?.ok_or_else(|| unusable(path, "it is not there"))?;
    object(path, text)
}

fn read_settings(config: &Object) -> Result<Config, Failure> {
    Config::read(config).map_err(|invalid| bad(&invalid))
}

fn bad(invalid: &Invalid) -> Failure {
    refused(Code::BadBucketing, invalid.told().to_string())
}

fn unusable(path: &Path, what: &str) -> Failure {
    refused(Code::BadBucketFile, format!("{}: {what}", path.display()))
}

/// Reads a state from a file, if there is one.
fn read_state(path: &Path) -> Result<Option<Object>, Failure> {
    let text = read_text(path)?;
    // As connectors have it that have no state yet.
    let text = text.filter(|text| text.trim() != "null");
    text.map(|text| object(path, text)).transpose()
}

fn object(path: &Path, text: String) -> Result<Object, Failure> {
    Object::read(text).map_err(|broken| unusable(path, &broken.to_string()))
}

/// Reads a file, if there is one.
fn read_text(path: &Path) -> Result<Option<String>, Failure> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, &format!("it cannot be read: {error}"))),
        Ok(size) if size as u64 > MOST_BYTES => {
            return Err(unusable(path, "it is larger than 64 MiB"));
        }
        Ok(_) => {}
    }
    String::from_utf8(bytes).map(Some).map_err(|_| unusable(path, "it is no UTF-8"))
}
