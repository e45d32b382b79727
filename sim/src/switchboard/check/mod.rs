//! Checkers that judge a run of the switchboard. They know only its history.
//!
//! | checker | property |
//! |---|---|
//! | follow | a page has each stored message after its cursor once, in order, above `trimmed` |
//! | cursor | a cursor from a lost future is diverged or told of the gap; no other is diverged |
//! | once | a key takes effect once while it is kept; repetitions get the id of the first |
//! | fence | nothing is stored under a hold after a newer one passed; no newest hold is refused |
//! | token | a token is valid until it expires or is revoked, and not after |
//! | positions | new messages have the next positions, in the order of their submissions |
//! | retention | messages are kept for at least half their time, and not for ever |
//! | clock | the clock of retention moves at most twice as fast as time, and never goes back |
//! | liveness | connectors that stopped are offline at the end, the others online |
//! | sums | hours, days and periods have each heartbeat once, in the hour of its arrival |
//! | barrier | no step of counting under an older epoch does anything |

mod clock;
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

use super::Micros;
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
        follow(follow::FollowJudge::default(), history),
        follow(cursor::CursorJudge::default(), history),
        follow(once::OnceJudge::new(keep), history),
        follow(fence::FenceJudge::default(), history),
        follow(token::TokenJudge::default(), history),
        follow(positions::PositionJudge::default(), history),
        follow(retention::RetentionJudge::new(keep), history),
        follow(clock::ClockJudge::default(), history),
        follow(liveness::LivenessJudge, history),
        follow(sums::SumJudge::default(), history),
        follow(sums::BarrierJudge::default(), history),
    ];
    results.into_iter().filter_map(Result::err).collect()
}

/// Leads a checker through a history. A restored database has the state of its copy again.
fn follow<J: HistoryJudge>(mut judge: J, history: &[SwitchStep]) -> Result<(), CheckFinding> {
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

/// Times of the moves of the clock of retention.
#[derive(Clone, Copy, Debug, Default)]
struct ClockMoves {
    turn: i64,
    at: Micros,
}

impl ClockMoves {
    fn see(&mut self, step: &SwitchStep) {
        if let SwitchStep::Ticked { at, turn, .. } = step
            && *turn != self.turn
        {
            *self = Self { turn: *turn, at: *at };
        }
    }

    /// Returns when something that is stored now may be deleted at the earliest. The clock moves at
    /// most twice as far as was measured since its last move, which was before now.
    fn earliest(self, now: Micros, keep: Micros) -> Micros {
        now + (keep - (now - self.at)) / 2 - keep / 1_000
    }
}

/// Whether a submission stored anything new.
pub(super) fn has_new(sent: &SentSubmission) -> bool {
    new_events(sent).next().is_some()
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
