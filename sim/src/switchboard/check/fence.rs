//! Checker *fence*.

use std::collections::BTreeMap;

use super::{HistoryJudge, SentHold, SentSubmission, SubmissionFate, SwitchStep};

/// Source and duty of a fence; without a source it applies to every one.
type FenceScope = (Option<usize>, usize);

/// The stored fences.
#[derive(Clone, Debug, Default)]
pub(super) struct FenceJudge(BTreeMap<FenceScope, SentHold>);

/// The newest hold of a duty for a source.
#[derive(Clone, Copy, Debug)]
struct NewestOfScope {
    hold: SentHold,
    /// It is of every source, and must not be revealed to this one.
    is_hidden: bool,
}

fn scope(sent: &SentSubmission, hold: SentHold) -> FenceScope {
    (sent.token.map(|_| sent.source), hold.duty)
}

impl FenceJudge {
    /// Returns the newest stored hold that applies to a source.
    fn known(&self, scope: FenceScope) -> Option<NewestOfScope> {
        let (source, duty) = scope;
        let newest = |scope, is_hidden| {
            self.0.get(&scope).map(|hold| NewestOfScope { hold: *hold, is_hidden })
        };
        let of_all = newest((None, duty), source.is_some());
        let own = newest(scope, false);
        own.into_iter().chain(of_all).rev().max_by_key(|it| it.hold.epoch)
    }

    /// Judges a transaction, in which the newest hold of each duty counts first.
    fn judge(&mut self, sent: &[SentSubmission]) -> Result<(), String> {
        let held = || {
            let is_judged = |it: &&SentSubmission| {
                matches!(it.fate, SubmissionFate::Stored(_) | SubmissionFate::Fenced(_))
            };
            sent.iter().filter(is_judged).filter_map(|it| Some((it, it.hold?)))
        };
        let mut newest: BTreeMap<FenceScope, NewestOfScope> = BTreeMap::new();
        for (sent, hold) in held() {
            let scope = scope(sent, hold);
            let known = newest.get(&scope).copied().or_else(|| self.known(scope));
            let known = known.filter(|it| it.hold.epoch >= hold.epoch);
            newest.insert(scope, known.unwrap_or(NewestOfScope { hold, is_hidden: false }));
        }
        for (sent, hold) in held() {
            let NewestOfScope { hold: first, is_hidden } = newest[&scope(sent, hold)];
            let told = (!is_hidden).then_some((first.epoch, first.instance));
            let expected = (hold != first).then_some(told);
            let answered = match sent.fate {
                SubmissionFate::Fenced(told) => Some(told),
                _ => None,
            };
            if answered != expected {
                return Err(format!("{hold:?} after {first:?}: refused is {answered:?}"));
            }
        }
        // A transaction with an event that is refused for its content stores nothing.
        let is_refused = |it: &SentSubmission| match &it.fate {
            SubmissionFate::Stored(outcomes) => outcomes.contains(&None),
            _ => false,
        };
        if !sent.iter().any(is_refused) {
            let stored = newest.into_iter().filter(|(_, it)| !it.is_hidden);
            self.0.extend(stored.map(|(scope, it)| (scope, it.hold)));
        }
        Ok(())
    }
}

impl HistoryJudge for FenceJudge {
    const NAME: &'static str = "fence";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        match step {
            SwitchStep::Committed { sent, .. } => return self.judge(sent),
            SwitchStep::FenceReset(duty) => self.0.retain(|(_, of), _| of != duty),
            _ => {}
        }
        Ok(())
    }
}
