//! Checkers that judge a run of the switchboard. They know only its history.
//!
//! | checker | property |
//! |---|---|
//! | follow | a page has each stored message after its cursor once, in order, above `trimmed` |
//! | cursor | a cursor from a lost future is diverged or told of the gap; no other is diverged |
//! | once | a key takes effect once while it is kept; repetitions get the id of the first |
//! | content | an event is refused for its content only if its id is taken, and no other with it |
//! | fence | nothing is stored under a hold after a newer one passed; no newest hold is refused |
//! | token | a token is valid until it expires or is revoked, and not after |
//! | positions | new messages have the next positions, above all known ones after an adoption |
//! | retention | what the clock of retention makes old is deleted, nothing else, and it is told |
//! | clock | the clock of retention moves at most twice as fast as time, and never goes back |
//! | liveness | at the end the list has every connector: offline if it stopped, else online |
//! | sums | hours, days, periods and counters have each heartbeat once, in the hour it arrived |
//! | barrier | no step of counting under an older epoch does anything |

mod clock;
mod content;
mod cursor;
mod fence;
mod follow;
mod liveness;
mod once;
mod positions;
mod retention;
mod sums;
mod token;

#[cfg(test)]
mod tests;

use tenure_switchboard::storage::InboxRetention;

pub use super::story::*;
use crate::check::CheckFinding;

/// A checker that goes through the history.
trait HistoryJudge: Clone {
    /// Its name.
    const NAME: &'static str;

    /// Judges the next step.
    fn see(&mut self, step: &SwitchStep) -> Result<(), String>;

    /// Takes over what a restore of the database does not undo.
    fn survive(&mut self, _lost: Self) {}
}

/// Judges a history by all checkers.
pub fn judge(keep: InboxRetention, history: &[SwitchStep]) -> Vec<CheckFinding> {
    let results = [
        lead(follow::FollowJudge::default(), history),
        lead(cursor::CursorJudge::default(), history),
        lead(once::OnceJudge::new(keep), history),
        lead(content::ContentJudge::default(), history),
        lead(fence::FenceJudge::default(), history),
        lead(token::TokenJudge::default(), history),
        lead(positions::PositionJudge::default(), history),
        lead(retention::RetentionJudge::new(keep), history),
        lead(clock::ClockJudge::default(), history),
        lead(liveness::LivenessJudge::default(), history),
        lead(sums::SumJudge::default(), history),
        lead(sums::BarrierJudge::default(), history),
    ];
    results.into_iter().filter_map(Result::err).collect()
}

/// Leads a checker through a history. A restored database has the state of its copy again.
fn lead<J: HistoryJudge>(mut judge: J, history: &[SwitchStep]) -> Result<(), CheckFinding> {
    let mut copies = Vec::new();
    for (number, step) in history.iter().enumerate() {
        if let SwitchStep::Restored(copy) = step {
            let lost = std::mem::replace(&mut judge, J::clone(&copies[*copy]));
            judge.survive(lost);
        }
        judge.see(step).map_err(|what| CheckFinding {
            checker: J::NAME,
            what: format!("step {number}: {what}"),
        })?;
        if matches!(step, SwitchStep::BackedUp) {
            copies.push(judge.clone());
        }
    }
    Ok(())
}

/// The clock of retention, as it was read last.
#[derive(Clone, Copy, Debug, Default)]
struct StampClock {
    reached: i64,
}

impl StampClock {
    fn see(&mut self, step: &SwitchStep) {
        if let SwitchStep::Ticked { reached, .. } = step {
            self.reached = *reached;
        }
    }

    /// Returns the time of an arrival: by the store's clock, or this one if that is later.
    fn stamp(self, wall: i64) -> i64 {
        wall.max(self.reached)
    }
}

/// Returns the events of a submission that were stored as new, with their ids.
fn new_events(sent: &SentSubmission) -> impl Iterator<Item = (uuid::Uuid, SourceEvent)> + '_ {
    let outcomes = match &sent.fate {
        SubmissionFate::Stored(outcomes) => &outcomes[..],
        _ => &[],
    };
    let pairs = sent.items.iter().zip(outcomes);
    pairs.filter(|(_, outcome)| outcome.is_some_and(|it| !it.duplicate)).map(|(item, _)| *item)
}
