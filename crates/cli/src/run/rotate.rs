//! A rotation around the command: a bucket for each run.

use tenure_core::Code;
use tenure_duty::Guard as Hold;

use super::Runner;
use super::attend::Outcome;
use crate::bucket::rotation::{Rotation, Step, Told};
use crate::failure::Failure;
use crate::guard::End;
use crate::observe::{Level, Note};

/// What stands when a bucket was noted and its command did not start.
const SKIPPED: &str = "nothing was run, and the bucket counts as executed";

impl Runner {
    /// What is done with a hold: the command, and around it the step of a rotation.
    pub(super) async fn serve(&mut self, hold: &Hold) -> Outcome {
        let Some(rotation) = self.settings.rotation.clone() else {
            return self.attend(hold, &[]).await;
        };
        match rotation.step_under(hold).await {
            Ok(step) => match self.take(&rotation, &step, hold).await {
                Ok(outcome) => outcome,
                Err(failure) => Outcome::Refused(failure),
            },
            Err(failure) if is_fenced(&failure) => Outcome::TakenAway,
            Err(failure) => Outcome::Refused(failure),
        }
    }

    /// Takes a step: prints it, or runs the command with its bucket.
    async fn take(
        &mut self,
        rotation: &Rotation,
        step: &Step,
        hold: &Hold,
    ) -> Result<Outcome, Failure> {
        if self.settings.command.is_empty() {
            rotation.print(step)?;
            return Ok(Outcome::Ended(End::Code(0)));
        }
        for Told { level, text } in &step.told {
            self.tell(*level, text.clone(), hold);
        }
        let given = step.hand_over(self.scratch.path());
        let given = given.map_err(|failure| match rotation.is_noted(step) {
            true => failure.keeping(SKIPPED),
            false => failure,
        })?;
        let outcome = self.attend(hold, &given).await;
        let asked_to_end = self.asked_to_end.is_some() || self.interrupted;
        match outcome {
            // One that was asked to end may say that all is well, and not be done.
            Outcome::Ended(End::Code(0)) if !asked_to_end => rotation.succeeded(step, hold).await?,
            Outcome::CannotStart(_) if rotation.is_noted(step) => {
                self.tell(Level::Warn, SKIPPED.to_owned(), hold);
            }
            _ if rotation.waits_for_success(step) => {
                let text = "the run has not succeeded: its bucket comes again".to_owned();
                self.tell(Level::Warn, text, hold);
            }
            _ => {}
        }
        Ok(outcome)
    }

    fn tell(&self, level: Level, reason: String, hold: &Hold) {
        let duty = Some((hold.duty().clone(), hold.epoch()));
        self.notes.say(Note { level, event: "bucket", duty, reason });
    }
}

/// The hold was lost before anything ran.
fn is_fenced(failure: &Failure) -> bool {
    match failure {
        Failure::Store(error) | Failure::Kept { error, .. } => error.code() == Code::Fenced,
        _ => false,
    }
}
