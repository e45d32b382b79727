//! Checker *clock*.

use super::{HistoryJudge, SwitchStep};
use crate::switchboard::{MINUTE, Micros};

/// Largest difference from the store's clock once that is right.
const MAX_LAG: Micros = 30 * MINUTE;

/// The last move of the clock of retention.
#[derive(Clone, Debug, Default)]
pub(super) struct ClockJudge {
    moved: Option<(Micros, i64, i64)>,
    /// The clocks are right again.
    is_right: bool,
}

impl HistoryJudge for ClockJudge {
    const NAME: &'static str = "clock";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        if let SwitchStep::ClocksRight = step {
            self.is_right = true;
        }
        let SwitchStep::Ticked { at, turn, wall, reached } = step else { return Ok(()) };
        if self.is_right && (wall - reached).abs() > MAX_LAG {
            return Err(format!("it is {} us off the right clock", wall - reached));
        }
        if let Some((before, was_turn, was)) = self.moved {
            let (real, moved) = (at - before, reached - was);
            if moved < 0 {
                return Err(format!("it goes back by {} us", -moved));
            }
            // Monotone clocks differ by less than a thousandth.
            if moved > 2 * real + real / 1_000 {
                return Err(format!("it moves {moved} us in {real} us"));
            }
            if *turn == was_turn {
                return if moved == 0 { Ok(()) } else { Err("it moves without a turn".to_owned()) };
            }
        }
        self.moved = Some((*at, *turn, *reached));
        Ok(())
    }

    fn survive(&mut self, lost: Self) {
        // Time passes while the copy lies there, but nobody measures it for the clock.
        self.moved = match (self.moved, lost.moved) {
            (Some((_, turn, reached)), Some((at, ..))) => Some((at, turn, reached)),
            (moved, _) => moved,
        };
    }
}
