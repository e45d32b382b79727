//! Bucket rotation: chooses the bucket of the next run, and records that it was executed.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use tenure_core::bucket::{Field, Invalid, Total};
use tenure_core::store::Checkpoint;
use tenure_core::{Code, Document, StoreError};
use tenure_duty::Guard;
use tenure_wire::bucket::{
    AppliedBucket, CommitTiming, Config, Executed, STATE, apply, carry_over,
};
use tenure_wire::object::Object;

use crate::error::{OperateError, nothing_happened};
use crate::replace::replace;

/// Upper bound of a config or state file.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// State after the store did not record a step.
const NOT_RUN: &str = "nothing was run; the next run finds out whether the rotation advanced";
/// State after the state file could not be replaced.
const STATE_INTACT: &str = "nothing was run; the state file is intact, old or new";
/// State after a successful run could not be recorded.
const RUN_AGAIN: &str = "the run succeeded but is not recorded: its bucket will run again";
/// State after the answer to recording a successful run was lost.
const PERHAPS_AGAIN: &str = "the run succeeded; the next run finds out whether it is recorded";
/// State after only the state file could not be written.
const ONLY_IN_STORE: &str =
    "the run succeeded and is recorded in the store; the state file was left unchanged";

/// A rotation through buckets.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// Config file of the connector.
    pub config: PathBuf,
    /// State file of the connector.
    pub state: PathBuf,
    /// When a bucket counts as executed.
    pub commit: CommitTiming,
    /// Replace the state file.
    pub write: bool,
    /// Record the rotation in the store, too.
    pub held: bool,
}

/// A step that was taken: its run may begin.
#[derive(Debug)]
pub struct RotationStep {
    /// Config of the run.
    pub config: Object,
    /// State to keep now.
    pub state: Option<Object>,
    executed: Option<Executed>,
    /// Bucket of the run.
    pub id: u32,
    /// Number of buckets.
    pub total: Total,
    /// Record in the store before the step.
    recorded: Option<Object>,
    /// Notices for the log.
    pub notices: Vec<RotationNotice>,
}

/// A notice for the log.
#[derive(Clone, Debug)]
pub struct RotationNotice {
    /// Whether it is a warning.
    pub warning: bool,
    /// Text.
    pub text: String,
}

impl Rotation {
    /// Takes a step without a store.
    pub fn step(&self) -> Result<RotationStep, OperateError> {
        let step = self.choose(None)?;
        self.write_state(&step)?;
        Ok(step)
    }

    /// Takes a step under a hold: the store has the last bucket, and no other holder changes it.
    pub async fn step_under(&self, hold: &Guard) -> Result<RotationStep, OperateError> {
        let kept = hold.load().await.map_err(nothing_happened)?;
        let kept = kept.map(|last| record_of(hold, &last)).transpose()?;
        let step = self.choose(kept)?;
        // The state file first: it is ignored once the store has a record.
        self.write_state(&step)?;
        if let Some(executed) = self.executed(&step, CommitTiming::AtStart) {
            let committed = hold.commit(document(&executed.record(step.recorded.clone()))?).await;
            committed.map_err(|error| OperateError::Kept { error, kept: NOT_RUN })?;
        }
        Ok(step)
    }

    /// Records that the run of a step has succeeded.
    pub async fn succeeded(&self, step: &RotationStep, hold: &Guard) -> Result<(), OperateError> {
        let Some(executed) = self.executed(step, CommitTiming::OnSuccess) else { return Ok(()) };
        let committed = hold.commit(document(&executed.record(step.recorded.clone()))?).await;
        committed.map_err(|error| {
            let kept = if error.is_unknown() { PERHAPS_AGAIN } else { RUN_AGAIN };
            OperateError::Kept { error, kept }
        })?;
        if self.write {
            // The run may have changed the state file since.
            let written = read_state(&self.state);
            let written = written.and_then(|now| self.replace_state(&executed.record(now)));
            written.map_err(|error| error.keeping(ONLY_IN_STORE))?;
        }
        Ok(())
    }

    /// Whether the bucket of a step counts as executed, whatever its run does.
    pub fn is_recorded(&self, step: &RotationStep) -> bool {
        self.executed(step, CommitTiming::AtStart).is_some()
    }

    /// Whether the same bucket is next until its run succeeds.
    pub fn waits_for_success(&self, step: &RotationStep) -> bool {
        self.executed(step, CommitTiming::OnSuccess).is_some()
    }

    /// Returns the bucket of a step if it counts as executed at this time.
    fn executed(&self, step: &RotationStep, when: CommitTiming) -> Option<Executed> {
        step.executed.filter(|_| self.commit == when)
    }

    /// Refuses a config that cannot be used.
    pub fn check(&self) -> Result<(), OperateError> {
        read_config(&self.config).map(drop)
    }

    fn choose(&self, kept: Option<Object>) -> Result<RotationStep, OperateError> {
        let (config, Config { id, total, round_robin, .. }) = read_config(&self.config)?;
        if self.write && self.state.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(unusable(&self.state, "it is not a regular file"));
        }
        let mut state = read_state(&self.state)?;
        let mut notices = Vec::new();
        let mut notice = |warning, text| notices.push(RotationNotice { warning, text });
        if round_robin {
            match &kept {
                Some(kept) => state = Some(carry_over(kept, state)),
                None if state.is_none() => {
                    let path = self.state.display();
                    notice(false, format!("no state in {path}: the rotation begins"));
                }
                None => {}
            }
        }
        let expected = self.write || self.held;
        if expected && !round_robin {
            let path = self.config.display();
            notice(false, format!("no rotation in {path}: always bucket {id}"));
        }
        let AppliedBucket { config, state, executed, notices: more, .. } =
            apply(config, state, self.commit).map_err(|invalid| bad(&invalid))?;
        more.iter().for_each(|one| notice(one.is_warning(), one.to_string()));
        if self.write && !self.held && self.commit == CommitTiming::OnSuccess {
            let text = "--write leaves the state unchanged, because the outcome of the run is not \
                        known here; keep state_on_success";
            notice(true, text.to_owned());
        }
        let id = executed.map_or(id, |executed| executed.bucket);
        Ok(RotationStep { config, state, executed, id, total, recorded: kept, notices })
    }

    /// Writes the state of a step, if it is new and `write` is set.
    fn write_state(&self, step: &RotationStep) -> Result<(), OperateError> {
        match (&step.state, self.executed(step, CommitTiming::AtStart)) {
            (Some(state), Some(_)) if self.write => {
                self.replace_state(state).map_err(|error| error.keeping(STATE_INTACT))
            }
            _ => Ok(()),
        }
    }

    /// Returns the state to keep after success, if the bucket counts as executed only then.
    pub fn state_on_success(&self, step: &RotationStep) -> Option<Object> {
        let executed = self.executed(step, CommitTiming::OnSuccess)?;
        Some(executed.record(step.state.clone()))
    }

    fn replace_state(&self, state: &Object) -> Result<(), OperateError> {
        let mut text = state.as_str().to_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        replace(&self.state, text.as_bytes())
            .map_err(|source| OperateError::Write { path: self.state.clone(), source })
    }
}

/// Reads the record of a rotation in the store.
fn record_of(hold: &Guard, last: &Checkpoint) -> Result<Object, OperateError> {
    let text = std::str::from_utf8(last.document.as_bytes()).ok();
    let record = text.and_then(|text| Object::read(text).ok());
    let record = record.filter(|record| record.get(STATE).is_some());
    record.ok_or_else(|| {
        let (duty, version) = (hold.duty(), last.version);
        let detail = format!("the checkpoint of {duty}, version {version}, has no {STATE}");
        OperateError::refused(Code::NoRotation, detail)
    })
}

fn document(record: &Object) -> Result<Document, StoreError> {
    Document::new(record.as_str())
}

/// Reads the config of a run. A rotating config without a chosen bucket is refused.
pub fn read_run_config(path: &Path) -> Result<Config, OperateError> {
    let (config, settings) = read_config(path)?;
    if settings.round_robin && config.get(Field::Id.as_str()).is_none() {
        let detail = format!(
            "{}: it rotates and has no bucket_id: use the config that `tenure bucket next` \
             prints, or --id and --total",
            path.display()
        );
        return Err(OperateError::refused(Code::BadBucketing, detail));
    }
    Ok(settings)
}

/// Reads a config, which must exist, and its settings.
fn read_config(path: &Path) -> Result<(Object, Config), OperateError> {
    let text = read_text(path)?.ok_or_else(|| unusable(path, "it does not exist"))?;
    let config = object(path, text)?;
    let settings = Config::read(&config).map_err(|invalid| bad(&invalid))?;
    Ok((config, settings))
}

fn bad(invalid: &Invalid) -> OperateError {
    OperateError::refused(Code::BadBucketing, invalid.details())
}

fn unusable(path: &Path, what: &str) -> OperateError {
    OperateError::refused(Code::BadBucketFile, format!("{}: {what}", path.display()))
}

/// Reads a state from a file, if there is one.
fn read_state(path: &Path) -> Result<Option<Object>, OperateError> {
    let text = read_text(path)?;
    // Connectors write `null` while they have no state.
    let text = text.filter(|text| text.trim() != "null");
    text.map(|text| object(path, text)).transpose()
}

fn object(path: &Path, text: String) -> Result<Object, OperateError> {
    Object::read(text).map_err(|broken| unusable(path, &broken.to_string()))
}

/// Reads a file, if there is one.
fn read_text(path: &Path) -> Result<Option<String>, OperateError> {
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, &format!("it cannot be read: {error}"))),
        Ok(size) if size as u64 > MAX_FILE_BYTES => {
            return Err(unusable(path, "it is larger than 64 MiB"));
        }
        Ok(_) => {}
    }
    String::from_utf8(bytes).map(Some).map_err(|_| unusable(path, "it is not UTF-8"))
}
