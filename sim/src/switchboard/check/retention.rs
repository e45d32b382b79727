//! Checker *retention*.

use std::collections::BTreeMap;

use tenure_switchboard::storage::InboxRetention;
use uuid::Uuid;

use super::{ClockMoves, HistoryJudge, SwitchStep};
use crate::switchboard::Micros;

/// The messages that are kept.
#[derive(Clone, Debug)]
pub(super) struct RetentionJudge {
    keep: Micros,
    now: Micros,
    moves: ClockMoves,
    kept: BTreeMap<i64, KeptMessage>,
}

#[derive(Clone, Copy, Debug)]
struct KeptMessage {
    id: Uuid,
    stored: Micros,
    /// It may be deleted from then on.
    until: Micros,
}

impl RetentionJudge {
    pub(super) fn new(keep: InboxRetention) -> Self {
        Self { keep: keep.bodies, now: 0, moves: ClockMoves::default(), kept: BTreeMap::new() }
    }

    fn compare(&mut self, rows: &[(i64, Uuid)], trimmed: i64) -> Result<(), String> {
        let rows: BTreeMap<i64, Uuid> = rows.iter().copied().collect();
        for (position, KeptMessage { id, stored, until }) in &self.kept {
            let age = self.now - stored;
            if rows.get(position) == Some(id) {
                continue;
            }
            if *position > trimmed {
                return Err(format!("{id} at {position} is gone, but trimmed is {trimmed}"));
            }
            if self.now < *until {
                return Err(format!("{id} at {position} was deleted after {age} us"));
            }
        }
        self.kept.retain(|position, _| rows.contains_key(position));
        match rows.iter().find(|(position, _)| !self.kept.contains_key(position)) {
            Some((position, id)) => Err(format!("{id} at {position} is there again")),
            None => Ok(()),
        }
    }
}

impl HistoryJudge for RetentionJudge {
    const NAME: &'static str = "retention";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        self.moves.see(step);
        match step {
            SwitchStep::Committed { at, .. } => self.now = *at,
            SwitchStep::Observed(rows) => {
                let (stored, until) = (self.now, self.moves.earliest(self.now, self.keep));
                let kept = |id| KeptMessage { id, stored, until };
                self.kept.extend(rows.iter().map(|(position, id)| (*position, kept(*id))));
            }
            SwitchStep::Inventory { at, stored_after, rows, trimmed } => {
                self.now = *at;
                self.compare(rows, *trimmed)?;
                let old = self.kept.iter().find(|(_, it)| it.stored < *stored_after);
                if let Some((position, KeptMessage { id, stored, .. })) = old {
                    let age = self.now - stored;
                    return Err(format!("{id} at {position} is still there after {age} us"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
