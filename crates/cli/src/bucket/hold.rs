//! Rotation under a hold: a bucket for each run of the command.
//!
//! Why: docs/decisions/0044-a-rotation-record-is-a-checkpoint.md

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use tenure_core::{BoxFuture, Code, StoreError};
use tenure_operate::bucket::{Rotation, RotationStep};
use tenure_supervise::SuperviseError;
use tenure_supervise::guard::ExitStatus;
use tenure_supervise::observe::LogLevel;
use tenure_supervise::run::{AssignedWork, Assignment, RunOutcome};

use super::next::{StepOutput, print_step};
use crate::env;
use crate::failure::Failure;

/// State after a bucket was recorded and its command did not start.
const SKIPPED: &str = "nothing was run, and the bucket counts as executed";

/// Rotation under a hold: prints its step, or runs a command with the bucket.
#[derive(Debug)]
pub(crate) struct RotationWork {
    pub(super) rotation: Rotation,
    /// Output of the step; `None` if a command is run.
    pub(super) output: Option<StepOutput>,
}

impl AssignedWork for RotationWork {
    fn work<'a>(&'a self, assignment: &'a mut Assignment<'_>) -> BoxFuture<'a, RunOutcome> {
        Box::pin(async move {
            let step = match self.rotation.step_under(assignment.hold()).await {
                Ok(step) => step,
                // The hold was lost before anything ran.
                Err(error) if error.code() == Code::Fenced => return RunOutcome::TakenAway,
                Err(error) => return refused(error.into()),
            };
            self.run(&step, assignment).await.unwrap_or_else(refused)
        })
    }
}

impl RotationWork {
    /// Prints a step, or runs the command with its bucket.
    async fn run(
        &self,
        step: &RotationStep,
        assignment: &mut Assignment<'_>,
    ) -> Result<RunOutcome, Failure> {
        let rotation = &self.rotation;
        if let Some(output) = self.output {
            print_step(rotation, step, output)?;
            return Ok(RunOutcome::Ended(ExitStatus::Code(0)));
        }
        for notice in &step.notices {
            let level = if notice.warning { LogLevel::Warn } else { LogLevel::Info };
            assignment.log(level, "bucket", notice.text.clone());
        }
        let variables = variables(step, assignment.scratch()).map_err(Failure::from);
        let variables = variables.map_err(|failure| match rotation.is_recorded(step) {
            true => failure.keeping(SKIPPED),
            false => failure,
        })?;
        let outcome = assignment.run(&variables).await;
        match outcome {
            // A command that was told to stop may exit with 0 before its work is done.
            RunOutcome::Ended(ExitStatus::Code(0)) if !assignment.is_stopping() => {
                rotation.succeeded(step, assignment.hold()).await?;
            }
            RunOutcome::CannotStart(_) if rotation.is_recorded(step) => {
                assignment.log(LogLevel::Warn, "bucket", SKIPPED.to_owned());
            }
            _ if rotation.waits_for_success(step) => {
                let text = "the run did not succeed: its bucket is next again".to_owned();
                assignment.log(LogLevel::Warn, "bucket", text);
            }
            _ => {}
        }
        Ok(outcome)
    }
}

fn refused(failure: Failure) -> RunOutcome {
    // A step fails only with `Failure::Error`.
    let Failure::Error(report) = failure else {
        return RunOutcome::Refused(StoreError::refused(Code::Machine, "rotation failed").into());
    };
    RunOutcome::Refused(match (report.error, report.kept) {
        (error, Some(kept)) => SuperviseError::Kept { error, kept },
        (error, None) => error.into(),
    })
}

/// Environment of a command: its bucket in two variables, config and state in two files.
fn variables(step: &RotationStep, folder: &Path) -> anyhow::Result<Vec<(String, OsString)>> {
    let write = |name: &str, content: &str| -> anyhow::Result<OsString> {
        let path = folder.join(name);
        // The content may include secrets.
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&path).and_then(|mut file| file.write_all(content.as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path.into())
    };
    let state = step.state.clone().unwrap_or_default();
    Ok([
        (env::BUCKET_ID, step.id.to_string().into()),
        (env::BUCKET_TOTAL, step.total.to_string().into()),
        (env::BUCKET_CONFIG, write("config.json", step.config.as_str())?),
        (env::BUCKET_STATE, write("state.json", state.as_str())?),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into())
}
