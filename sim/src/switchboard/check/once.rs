//! Checker *once*.

use std::collections::BTreeMap;

use tenure_switchboard::storage::{EventOutcome, InboxRetention};
use uuid::Uuid;

use super::{ClockMoves, EventKey, HistoryJudge, SourceEvent, SubmissionFate, SwitchStep};
use crate::switchboard::{HOUR, Micros};

/// The keys that were stored.
#[derive(Clone, Debug)]
pub(super) struct OnceJudge {
    keep: Micros,
    moves: ClockMoves,
    keys: BTreeMap<(usize, EventKey), StoredKey>,
}

#[derive(Clone, Copy, Debug)]
struct StoredKey {
    id: Uuid,
    payload: u64,
    observed: i64,
    /// It may be deleted from then on.
    until: Micros,
    /// Retention may have deleted it.
    may_be_gone: bool,
}

impl OnceJudge {
    pub(super) fn new(keep: InboxRetention) -> Self {
        Self {
            keep: keep.keys.max(keep.bodies),
            moves: ClockMoves::default(),
            keys: BTreeMap::new(),
        }
    }

    fn event(
        &mut self,
        at: Micros,
        (id, event): (Uuid, SourceEvent),
        outcome: EventOutcome,
    ) -> Result<(), String> {
        let until = self.moves.earliest(at, self.keep);
        let known: Vec<((usize, EventKey), StoredKey)> =
            same(event).into_iter().filter_map(|key| Some((key, *self.keys.get(&key)?))).collect();
        let known = known.into_iter().filter(|((_, key), it)| {
            *key == event.key || it.observed > event.observed.saturating_sub(HOUR)
        });
        let known: Vec<_> = known.collect();
        if outcome.duplicate {
            let Some((key, it)) = known.iter().find(|(_, it)| it.id == outcome.request_id) else {
                return Err(format!("{event:?} is a duplicate of {}", outcome.request_id));
            };
            if outcome.reused != (it.payload != event.payload) {
                return Err(format!("{event:?} of {it:?}: reused is {}", outcome.reused));
            }
            self.keys.insert(*key, StoredKey { until, may_be_gone: false, ..*it });
            return Ok(());
        }
        if outcome.request_id != id {
            return Err(format!("{event:?} is new as {} instead of {id}", outcome.request_id));
        }
        if let Some((_, it)) = known.iter().find(|(_, it)| !it.may_be_gone) {
            return Err(format!("{event:?} takes effect again as {id}, after {}", it.id));
        }
        let SourceEvent { source, key, payload, observed } = event;
        let new = StoredKey { id, payload, observed, until, may_be_gone: false };
        self.keys.insert((source, key), new);
        Ok(())
    }
}

/// Returns the keys under which an event may be known.
fn same(event: SourceEvent) -> Vec<(usize, EventKey)> {
    let mut keys = vec![(event.source, event.key)];
    if let EventKey::Content(text, hour) = event.key {
        keys.push((event.source, EventKey::Content(text, hour - 1)));
    }
    keys
}

impl HistoryJudge for OnceJudge {
    const NAME: &'static str = "once";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        self.moves.see(step);
        match step {
            SwitchStep::Committed { at, sent, .. } => {
                for sent in sent {
                    let SubmissionFate::Stored(outcomes) = &sent.fate else { continue };
                    for (item, outcome) in sent.items.iter().zip(outcomes) {
                        if let Some(outcome) = outcome {
                            self.event(*at, *item, *outcome)?;
                        }
                    }
                }
            }
            SwitchStep::KeysPruned(at) => {
                for key in self.keys.values_mut() {
                    key.may_be_gone |= *at >= key.until;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
