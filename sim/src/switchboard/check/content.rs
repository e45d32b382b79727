//! Checker *content*.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{HistoryJudge, SentSubmission, SubmissionFate, SwitchStep, new_events};

/// Ids of the stored messages. The store refuses another event with one of them.
#[derive(Clone, Debug, Default)]
pub(super) struct ContentJudge(BTreeSet<Uuid>);

impl ContentJudge {
    fn judge(&self, sent: &[SentSubmission]) -> Result<(), String> {
        let mut ids = sent.iter().flat_map(|it| &it.items).map(|(id, _)| id);
        let has_taken = ids.any(|id| self.0.contains(id));
        let failed = sent.iter().filter(|it| matches!(it.fate, SubmissionFate::Failed(_))).count();
        // A group whose clients gave up is not divided.
        if failed > 0 && (failed < sent.len() || !has_taken) {
            return Err(format!("{failed} of {} submissions failed: {sent:?}", sent.len()));
        }
        for SentSubmission { items, fate, .. } in sent {
            let SubmissionFate::Stored(outcomes) = fate else { continue };
            if outcomes.len() != items.len() {
                return Err(format!("{items:?} have the outcomes {outcomes:?}"));
            }
            for ((id, event), outcome) in items.iter().zip(outcomes) {
                if outcome.is_none() && !self.0.contains(id) {
                    return Err(format!("{event:?} is refused, but {id} is a new id"));
                }
            }
        }
        Ok(())
    }
}

impl HistoryJudge for ContentJudge {
    const NAME: &'static str = "content";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        let SwitchStep::Committed { sent, .. } = step else { return Ok(()) };
        self.judge(sent)?;
        self.0.extend(sent.iter().flat_map(new_events).map(|(id, _)| id));
        Ok(())
    }
}
