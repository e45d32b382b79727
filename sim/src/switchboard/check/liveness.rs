//! Checker *liveness*.

use tenure_switchboard::liveness::Liveness;

use super::{HistoryJudge, SwitchStep};
use crate::switchboard::{MINUTE, Micros};

/// Silence after which a connector is offline: 25 minutes at the longest interval, after two
/// readings of the clock.
const SILENCE: Micros = 58 * MINUTE;

/// Judges the connectors at the end of a run.
#[derive(Clone, Debug)]
pub(super) struct LivenessJudge;

impl HistoryJudge for LivenessJudge {
    const NAME: &'static str = "liveness";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        let SwitchStep::Judged { connector, silent, beats, liveness } = step else { return Ok(()) };
        let expected = match beats {
            true => Liveness::Online,
            false if *silent > SILENCE => Liveness::Offline,
            false => return Ok(()),
        };
        if *liveness == expected {
            return Ok(());
        }
        Err(format!("connector {connector}, silent for {silent} us, is {liveness}"))
    }
}
