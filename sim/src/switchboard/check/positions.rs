//! Checker *positions*.

use uuid::Uuid;

use super::{HistoryJudge, SwitchStep, new_events};

/// Ids that the observer has to see next, and the position before them.
#[derive(Clone, Debug, Default)]
pub(super) struct PositionJudge {
    last: i64,
    new: Vec<Uuid>,
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
            }
            SwitchStep::Adopted(floor) => {
                if *floor <= self.last {
                    return Err(format!("the floor {floor} is not above {}", self.last));
                }
                self.last = *floor;
            }
            _ => {}
        }
        Ok(())
    }

    fn survive(&mut self, _lost: Self) {
        self.new.clear();
    }
}
