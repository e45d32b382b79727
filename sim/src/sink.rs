//! A durable resource that accepts effects: it fences by epoch and nonce (R11) and deduplicates
//! events (R15).

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::{DutyId, Epoch, Mutant, Nonce};

/// Outcome of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectVerdict {
    /// It took effect.
    Accepted,
    /// It took effect earlier.
    Duplicate,
    /// A newer epoch was seen before.
    Fenced {
        /// The newest epoch seen.
        newest: Epoch,
    },
}

#[derive(Debug, Default)]
struct SinkRow {
    fence: Option<(Epoch, Nonce)>,
    /// The events that took effect. A run is shorter than any retention, so all are kept.
    taken: BTreeSet<u64>,
}

/// The resource. It never loses data.
#[derive(Debug, Default)]
pub struct Sink(BTreeMap<DutyId, SinkRow>);

impl Sink {
    /// Takes event number `event` of a duty; number zero only announces the epoch.
    pub fn take(&mut self, duty: &DutyId, epoch: Epoch, nonce: Nonce, event: u64) -> EffectVerdict {
        let row = self.0.entry(duty.clone()).or_default();
        if let Some((newest, owner)) = row.fence
            && (epoch < newest || (epoch == newest && owner != nonce && !Mutant::R11Nonce.is_on()))
            && !Mutant::R11Fence.is_on()
        {
            return EffectVerdict::Fenced { newest };
        }
        row.fence = Some((epoch, nonce));
        if event == 0 || !row.taken.insert(event) && !Mutant::R15Again.is_on() {
            return EffectVerdict::Duplicate;
        }
        EffectVerdict::Accepted
    }

    /// Returns the highest event that took effect.
    pub fn last(&self, duty: &DutyId) -> u64 {
        self.0.get(duty).and_then(|row| row.taken.last().copied()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_epoch_and_a_stranger_under_the_same_one_are_fenced() {
        let (mut sink, duty) = (Sink::default(), DutyId::new("d").unwrap());
        let epoch = |n| Epoch::new(n).unwrap();
        let (a, b) = (Nonce::from_entropy(1), Nonce::from_entropy(2));
        assert_eq!(sink.take(&duty, epoch(1), a, 1), EffectVerdict::Accepted);
        assert_eq!(sink.take(&duty, epoch(1), a, 1), EffectVerdict::Duplicate);
        assert_eq!(sink.take(&duty, epoch(1), b, 2), EffectVerdict::Fenced { newest: epoch(1) });
        assert_eq!(sink.take(&duty, epoch(2), b, 2), EffectVerdict::Accepted);
        assert_eq!(sink.take(&duty, epoch(1), a, 3), EffectVerdict::Fenced { newest: epoch(2) });
        assert_eq!(sink.last(&duty), 2);
    }

    /// As a real receiver, it knows events by their identity, not by their order.
    #[test]
    fn an_event_takes_effect_once_in_any_order() {
        let (mut sink, duty) = (Sink::default(), DutyId::new("d").unwrap());
        let (epoch, nonce) = (Epoch::new(1).unwrap(), Nonce::from_entropy(1));
        let mut take = |event| sink.take(&duty, epoch, nonce, event);
        assert_eq!([0, 3, 1, 3, 1].map(&mut take), {
            use EffectVerdict::{Accepted, Duplicate};
            [Duplicate, Accepted, Accepted, Duplicate, Duplicate]
        });
        assert_eq!(sink.last(&duty), 3);
    }
}
