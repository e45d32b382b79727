//! Checker *positions*.

use uuid::Uuid;

use super::{HistoryJudge, SwitchStep, new_events};

/// An adoption leaves at least as many positions free: more than any lost future has used.
const JUMP: i64 = 1_000_000;

/// Ids that the observer has to see next, and the positions before them.
#[derive(Clone, Debug, Default)]
pub(super) struct PositionJudge {
    last: i64,
    /// The highest position ever, also in a lost future.
    highest: i64,
    new: Vec<Uuid>,
}

impl PositionJudge {
    fn adopted(&mut self, wall: i64, floor: i64) -> Result<(), String> {
        // After an adoption that a restore has lost, only the store's clock tells how far to go:
        // not if it was set back.
        let is_known = wall >= self.highest || self.highest < self.last + JUMP;
        let above = if is_known { self.highest } else { self.last };
        if floor <= above {
            return Err(format!("the floor {floor} is not above {above}"));
        }
        (self.last, self.highest) = (floor, self.highest.max(floor));
        Ok(())
    }
}

impl HistoryJudge for PositionJudge {
    const NAME: &'static str = "positions";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        match step {
            SwitchStep::Committed { sent, .. } => {
                self.new.extend(sent.iter().flat_map(new_events).map(|(id, _)| id));
            }
            SwitchStep::Observed(rows) => {
                let new = std::mem::take(&mut self.new);
                let expected: Vec<(i64, Uuid)> = (self.last + 1..).zip(new).collect();
                if *rows != expected {
                    return Err(format!("new are {rows:?} instead of {expected:?}"));
                }
                self.last += rows.len() as i64;
                self.highest = self.highest.max(self.last);
            }
            SwitchStep::Adopted { wall, floor } => return self.adopted(*wall, *floor),
            _ => {}
        }
        Ok(())
    }

    fn survive(&mut self, lost: Self) {
        self.highest = lost.highest;
        self.new.clear();
    }
}
