//! Rotation under a hold: a bucket for each run of the command.

use tenure_core::{BoxFuture, Code, StoreError};
use tenure_supervise::SuperviseError;
use tenure_supervise::guard::ExitStatus;
use tenure_supervise::observe::LogLevel;
use tenure_supervise::run::{Assignment, RunOutcome, Work};

use super::rotation::{Rotation, Step, Told};
use crate::failure::Failure;

/// State after a bucket was recorded and its command did not start.
const SKIPPED: &str = "nothing was run, and the bucket counts as executed";

/// A rotation around a command.
#[derive(Debug)]
pub(crate) struct RotationWork {
    pub(super) rotation: Rotation,
    /// Whether there is a command; otherwise the step is printed.
    pub(super) has_command: bool,
}

impl Work for RotationWork {
    fn work<'a>(&'a self, assignment: &'a mut Assignment<'_>) -> BoxFuture<'a, RunOutcome> {
        Box::pin(async move {
            let step = match self.rotation.step_under(assignment.hold()).await {
                Ok(step) => step,
                Err(failure) if is_fenced(&failure) => return RunOutcome::TakenAway,
                Err(failure) => return refused(failure),
            };
            self.run(&step, assignment).await.unwrap_or_else(refused)
        })
    }
}

impl RotationWork {
    /// Prints a step, or runs the command with its bucket.
    async fn run(
        &self,
        step: &Step,
        assignment: &mut Assignment<'_>,
    ) -> Result<RunOutcome, Failure> {
        let rotation = &self.rotation;
        if !self.has_command {
            rotation.print(step)?;
            return Ok(RunOutcome::Ended(ExitStatus::Code(0)));
        }
        for Told { level, text } in &step.told {
            assignment.log(*level, "bucket", text.clone());
        }
        let variables = step.hand_over(assignment.scratch());
        let variables = variables.map_err(|failure| match rotation.is_noted(step) {
            true => failure.keeping(SKIPPED),
            false => failure,
        })?;
        let outcome = assignment.run(&variables).await;
        match outcome {
            // A command that was asked to end may exit with 0 and not be done.
            RunOutcome::Ended(ExitStatus::Code(0)) if !assignment.is_stopping() => {
                rotation.succeeded(step, assignment.hold()).await?;
            }
            RunOutcome::CannotStart(_) if rotation.is_noted(step) => {
                assignment.log(LogLevel::Warn, "bucket", SKIPPED.to_owned());
            }
            _ if rotation.waits_for_success(step) => {
                let text = "the run has not succeeded: its bucket comes again".to_owned();
                assignment.log(LogLevel::Warn, "bucket", text);
            }
            _ => {}
        }
        Ok(outcome)
    }
}

fn refused(failure: Failure) -> RunOutcome {
    RunOutcome::Refused(match failure {
        Failure::Store(error) => error.into(),
        Failure::Kept { error, kept } => SuperviseError::Kept { error, kept },
        Failure::Machine(error) => StoreError::refused(Code::Machine, format!("{error:#}")).into(),
        // A step fails in no other way.
        _ => StoreError::refused(Code::Machine, "the rotation failed").into(),
    })
}

/// Whether the hold was lost before anything ran.
fn is_fenced(failure: &Failure) -> bool {
    match failure {
        Failure::Store(error) | Failure::Kept { error, .. } => error.code() == Code::Fenced,
        _ => false,
    }
}
