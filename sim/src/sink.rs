//! A durable resource that accepts effects: it fences by epoch and nonce (R11) and ignores
//! duplicates (R15).

use std::collections::BTreeMap;

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
    last: u64,
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
        if event <= row.last {
            return EffectVerdict::Duplicate;
        }
        row.last = event;
        EffectVerdict::Accepted
    }

    /// Returns the last event that took effect.
    pub fn last(&self, duty: &DutyId) -> u64 {
        self.0.get(duty).map_or(0, |row| row.last)
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
}
