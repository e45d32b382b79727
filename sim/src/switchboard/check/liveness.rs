//! Checker *liveness*.

use std::collections::BTreeMap;

use tenure_switchboard::liveness::Liveness;

use super::{BeatAnswer, HistoryJudge, ListedConnector, SentBeat, SwitchStep};
use crate::switchboard::{MINUTE, Micros};

/// Silence after which a connector is offline: 25 minutes at the longest interval, after two
/// readings of the clock.
const SILENCE: Micros = 58 * MINUTE;

/// The connectors, when each was heard last, and whether it is archived.
#[derive(Clone, Debug, Default)]
pub(super) struct LivenessJudge(BTreeMap<usize, (Micros, bool)>);

impl LivenessJudge {
    fn listed(
        &self,
        now: Micros,
        sending: &[usize],
        listed: &[ListedConnector],
    ) -> Result<(), String> {
        let known = self.0.iter().map(|(number, (_, is_archived))| (*number, *is_archived));
        let mut shown: Vec<(usize, bool)> =
            listed.iter().map(|it| (it.connector, it.is_archived)).collect();
        shown.sort_unstable();
        if !known.clone().eq(shown.iter().copied()) {
            let known: Vec<(usize, bool)> = known.collect();
            return Err(format!("the connectors are {shown:?} instead of {known:?}"));
        }
        for ListedConnector { connector, liveness, .. } in listed {
            let silent = now - self.0[connector].0;
            let expected = match sending.contains(connector) {
                true => Liveness::Online,
                false if silent > SILENCE => Liveness::Offline,
                false => continue,
            };
            if *liveness != expected {
                return Err(format!(
                    "connector {connector}, silent for {silent} us, is {liveness}"
                ));
            }
        }
        Ok(())
    }
}

impl HistoryJudge for LivenessJudge {
    const NAME: &'static str = "liveness";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        match step {
            SwitchStep::Beat(SentBeat {
                at,
                connector,
                answer: BeatAnswer::Accepted { late: false, .. },
                ..
            }) => {
                self.0.insert(*connector, (*at, false));
            }
            SwitchStep::ConnectorDeleted(connector) => {
                self.0.remove(connector);
            }
            SwitchStep::Archived(connector, archived) => {
                if let Some((_, is_archived)) = self.0.get_mut(connector) {
                    *is_archived = *archived;
                }
            }
            SwitchStep::Listed { at, sending, connectors } => {
                return self.listed(*at, sending, connectors);
            }
            _ => {}
        }
        Ok(())
    }
}
