//! Checker *retention*.

use std::collections::BTreeMap;

use tenure_switchboard::storage::InboxRetention;
use uuid::Uuid;

use super::{HistoryJudge, StampClock, SwitchStep};
use crate::switchboard::Micros;

/// The messages that are kept, and up to where they were deleted.
#[derive(Clone, Debug)]
pub(super) struct RetentionJudge {
    keep: Micros,
    clock: StampClock,
    /// Time of the newest messages.
    newest: i64,
    /// Id and time of each message, by position.
    kept: BTreeMap<i64, (Uuid, i64)>,
    trimmed: i64,
}

impl RetentionJudge {
    pub(super) fn new(keep: InboxRetention) -> Self {
        let (clock, kept) = (StampClock::default(), BTreeMap::new());
        Self { keep: keep.bodies, clock, newest: 0, kept, trimmed: 0 }
    }

    /// Judges a deletion. A message with a time beyond the clock of retention is from a clock that
    /// was ahead: it goes with those that follow, and keeps none of them.
    fn prune(&mut self, rows: &[(i64, Uuid)], trimmed: i64) -> Result<(), String> {
        let reached = self.clock.reached;
        let young = reached - self.keep..=reached;
        let rest = self.kept.split_off(&(trimmed + 1));
        let gone = std::mem::replace(&mut self.kept, rest);
        if let Some((position, _)) = gone.iter().find(|(_, (_, stamp))| young.contains(stamp)) {
            return Err(format!("the message at {position} was deleted too early"));
        }
        if let Some((position, (_, stamp))) = gone.last_key_value()
            && stamp >= young.start()
        {
            return Err(format!("the message at {position} was deleted before one that is old"));
        }
        let last = gone.last_key_value().map_or(self.trimmed, |(position, _)| *position);
        if trimmed != last {
            return Err(format!("trimmed is {trimmed} instead of {last}"));
        }
        self.trimmed = trimmed;
        let kept: Vec<(i64, Uuid)> = self.kept.iter().map(|(at, (id, _))| (*at, *id)).collect();
        if rows != kept {
            return Err(format!("the messages are {rows:?} instead of {kept:?}"));
        }
        let first = self.kept.iter().find(|(_, (_, stamp))| stamp <= young.end());
        match first.filter(|(_, (_, stamp))| stamp < young.start()) {
            Some((position, _)) => Err(format!("the message at {position} is still there")),
            None => Ok(()),
        }
    }
}

impl HistoryJudge for RetentionJudge {
    const NAME: &'static str = "retention";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        self.clock.see(step);
        match step {
            SwitchStep::Committed { wall, .. } => self.newest = self.clock.stamp(*wall),
            SwitchStep::Observed(rows) => {
                let newest = self.newest;
                self.kept.extend(rows.iter().map(|(position, id)| (*position, (*id, newest))));
            }
            SwitchStep::Pruned { rows, trimmed, .. } => return self.prune(rows, *trimmed),
            SwitchStep::Page(page) if page.trimmed != self.trimmed => {
                return Err(format!(
                    "a page has trimmed {} instead of {}",
                    page.trimmed, self.trimmed
                ));
            }
            _ => {}
        }
        Ok(())
    }
}
