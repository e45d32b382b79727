//! Checker *fence*.

use std::collections::{BTreeMap, BTreeSet};

use super::{HistoryJudge, SentHold, SentSubmission, SubmissionFate, SwitchStep};

/// Source and duty of a fence; without a source it applies to every one.
type FenceScope = (Option<usize>, usize);

/// The newest holds that passed.
#[derive(Clone, Debug, Default)]
pub(super) struct FenceJudge {
    newest: BTreeMap<FenceScope, SentHold>,
    /// Every hold that was sent.
    sent: BTreeSet<SentHold>,
}

fn scope(sent: &SentSubmission, hold: SentHold) -> FenceScope {
    (sent.token.map(|_| sent.source), hold.duty)
}

/// Whether a hold is refused beside another one that passed.
fn is_closed(hold: SentHold, newest: SentHold) -> bool {
    hold.epoch < newest.epoch || (hold.epoch == newest.epoch && hold.instance != newest.instance)
}

impl FenceJudge {
    /// Judges a hold that passed. A fence of every source counts for other sources once its group
    /// was committed: `before` has those.
    fn passed(
        &mut self,
        before: &BTreeMap<FenceScope, SentHold>,
        sent: &SentSubmission,
        hold: SentHold,
    ) -> Result<(), String> {
        let scope = scope(sent, hold);
        let newer = self.newest.get(&scope).into_iter().chain(before.get(&(None, hold.duty)));
        if let Some(newest) = newer.copied().find(|it| is_closed(hold, *it)) {
            return Err(format!("{hold:?} of {scope:?} passes after {newest:?}"));
        }
        // A submission whose events were all refused for their content stores no fence either.
        let is_refused = |outcomes: &[Option<_>]| outcomes.iter().all(Option::is_none);
        match &sent.fate {
            SubmissionFate::Stored(outcomes) if !outcomes.is_empty() && is_refused(outcomes) => {}
            _ => drop(self.newest.insert(scope, hold)),
        }
        Ok(())
    }

    /// Checks that a hold was refused because of another one that was really sent.
    fn refused(&self, hold: SentHold, told: Option<(u64, u64)>) -> Result<(), String> {
        let found = match told {
            Some((epoch, instance)) => {
                let told = SentHold { epoch, instance, ..hold };
                is_closed(hold, told) && self.sent.contains(&told)
            }
            None => self.sent.iter().any(|it| it.duty == hold.duty && is_closed(hold, *it)),
        };
        if found { Ok(()) } else { Err(format!("{hold:?} is refused because of {told:?}")) }
    }

    /// Checks that the newest hold of a group counted first.
    fn group(sent: &[SentSubmission]) -> Result<(), String> {
        let mut newest = BTreeMap::new();
        let passed = sent.iter().filter(|it| matches!(it.fate, SubmissionFate::Stored(_)));
        for (scope, hold) in passed.filter_map(|it| Some((scope(it, it.hold?), it.hold?))) {
            let first = *newest.entry(scope).or_insert(hold);
            if (first.epoch, first.instance) != (hold.epoch, hold.instance) {
                return Err(format!("{hold:?} and {first:?} pass in one group"));
            }
        }
        Ok(())
    }
}

impl HistoryJudge for FenceJudge {
    const NAME: &'static str = "fence";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        match step {
            SwitchStep::Committed { sent, is_group, .. } => {
                let before = self.newest.clone();
                self.sent.extend(sent.iter().filter_map(|it| it.hold));
                for (sent, hold) in sent.iter().filter_map(|it| Some((it, it.hold?))) {
                    match &sent.fate {
                        SubmissionFate::Stored(_) => self.passed(&before, sent, hold)?,
                        SubmissionFate::Fenced(told) => self.refused(hold, *told)?,
                        _ => {}
                    }
                }
                if *is_group {
                    Self::group(sent)?;
                }
            }
            SwitchStep::FenceReset(duty) => self.newest.retain(|(_, of), _| of != duty),
            _ => {}
        }
        Ok(())
    }

    fn survive(&mut self, lost: Self) {
        self.sent = lost.sent;
    }
}
