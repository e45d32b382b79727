//! Checker *once*.

use std::collections::BTreeMap;

use tenure_switchboard::storage::{EventOutcome, InboxRetention};
use uuid::Uuid;

use super::{EventKey, HistoryJudge, SourceEvent, StampClock, SubmissionFate, SwitchStep};
use crate::switchboard::{HOUR, Micros};

/// The keys that are kept.
#[derive(Clone, Debug)]
pub(super) struct OnceJudge {
    keep: Micros,
    clock: StampClock,
    keys: BTreeMap<(usize, EventKey), StoredKey>,
}

#[derive(Clone, Copy, Debug)]
struct StoredKey {
    id: Uuid,
    payload: u64,
    observed: i64,
    /// Time of the first event with this key.
    first: i64,
    /// Time of the last event with this key.
    seen: i64,
}

impl OnceJudge {
    pub(super) fn new(keep: InboxRetention) -> Self {
        let (clock, keys) = (StampClock::default(), BTreeMap::new());
        Self { keep: keep.keys.max(keep.bodies), clock, keys }
    }

    fn event(
        &mut self,
        stamp: i64,
        (id, event): (Uuid, SourceEvent),
        outcome: EventOutcome,
    ) -> Result<(), String> {
        let known: Vec<((usize, EventKey), StoredKey)> =
            same(event).into_iter().filter_map(|key| Some((key, *self.keys.get(&key)?))).collect();
        let known = known.into_iter().filter(|((_, key), it)| {
            *key == event.key || it.observed > event.observed.saturating_sub(HOUR)
        });
        let known = known.min_by_key(|(_, it)| (it.first, it.id));
        if outcome.duplicate {
            let Some((key, it)) = known.filter(|(_, it)| it.id == outcome.request_id) else {
                let id = outcome.request_id;
                return Err(format!("{event:?} is a duplicate of {id} instead of {known:?}"));
            };
            if outcome.reused != (it.payload != event.payload) {
                return Err(format!("{event:?} of {it:?}: reused is {}", outcome.reused));
            }
            self.keys.insert(key, StoredKey { seen: it.seen.max(stamp), ..it });
            return Ok(());
        }
        if outcome.request_id != id {
            return Err(format!("{event:?} is new as {} instead of {id}", outcome.request_id));
        }
        if let Some((_, it)) = known {
            return Err(format!("{event:?} takes effect again as {id}, after {}", it.id));
        }
        let SourceEvent { source, key, payload, observed } = event;
        self.keys
            .insert((source, key), StoredKey { id, payload, observed, first: stamp, seen: stamp });
        Ok(())
    }

    /// Forgets the keys that were not seen for longer than their retention.
    fn prune(&mut self, deleted: u64) -> Result<(), String> {
        let (before, kept) = (self.clock.reached - self.keep, self.keys.len());
        self.keys.retain(|_, key| key.seen >= before);
        let expected = kept - self.keys.len();
        if deleted == expected as u64 {
            return Ok(());
        }
        Err(format!("retention deleted {deleted} keys instead of {expected}"))
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
        self.clock.see(step);
        match step {
            SwitchStep::Committed { wall, sent } => {
                let stamp = self.clock.stamp(*wall);
                for sent in sent {
                    let SubmissionFate::Stored(outcomes) = &sent.fate else { continue };
                    for (item, outcome) in sent.items.iter().zip(outcomes) {
                        if let Some(outcome) = outcome {
                            self.event(stamp, *item, *outcome)?;
                        }
                    }
                }
            }
            SwitchStep::Pruned { keys, .. } => return self.prune(*keys),
            _ => {}
        }
        Ok(())
    }
}
