//! TTLs of single holds, beside those of their sessions, as in Redis: a grant gives a hold the
//! remaining time of its session, and a keep-alive extends only the holds that it names.

use std::collections::BTreeMap;

use tenure_core::store::Holder;
use tenure_core::{DutyId, Hold};

use crate::Nanos;

/// End of each hold.
#[derive(Clone, Debug, Default)]
pub struct Ends(BTreeMap<DutyId, (Hold, Nanos)>);

impl Ends {
    /// Adds a granted hold.
    pub fn begin(&mut self, hold: Hold, until: Nanos) {
        self.0.insert(hold.duty.id.clone(), (hold, until));
    }

    /// Extends a hold that a keep-alive named and that is still valid.
    pub fn extend(&mut self, hold: &Hold, until: Nanos) {
        let same = |known: &Hold| known.epoch == hold.epoch && known.nonce == hold.nonce;
        if let Some((_, end)) = self.0.get_mut(&hold.duty.id).filter(|(known, _)| same(known)) {
            *end = until;
        }
    }

    /// Removes and returns the holds that have ended.
    pub fn over(&mut self, now: Nanos) -> Vec<Hold> {
        if self.0.values().all(|(_, end)| *end > now) {
            return Vec::new();
        }
        let over = self.0.values().filter(|(_, end)| *end <= now);
        let over: Vec<Hold> = over.map(|(hold, _)| hold.clone()).collect();
        self.0.retain(|_, (_, end)| *end > now);
        over
    }

    /// Returns when a hold ends, if that is known.
    pub fn of(&self, hold: &Hold) -> Option<Nanos> {
        let (known, end) = self.0.get(&hold.duty.id)?;
        (known.epoch == hold.epoch && known.nonce == hold.nonce).then_some(*end)
    }

    /// Limits the remaining time of a holder to that of its hold.
    pub fn shorten(&self, holder: &mut Holder, now: Nanos) {
        if let (Some(of), Some((hold, end))) = (&mut holder.holder, self.0.get(&holder.duty.id))
            && holder.epoch == Some(hold.epoch)
        {
            of.remaining = of.remaining.min(std::time::Duration::from_nanos(end - now.min(*end)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{DutyKey, Epoch, InstanceId, Mark, Nonce};

    fn hold(duty: &str, epoch: u64) -> Hold {
        Hold {
            duty: DutyKey::new("g", duty).unwrap(),
            epoch: Epoch::new(epoch).unwrap(),
            instance: InstanceId::new("a").unwrap(),
            nonce: Nonce::from_entropy(1),
            mark: Mark::default(),
        }
    }

    #[test]
    fn only_what_is_named_lives_longer() {
        let mut ends = Ends::default();
        ends.begin(hold("x", 1), 10);
        ends.begin(hold("y", 1), 10);
        ends.extend(&hold("x", 1), 15);
        // Another epoch is a different hold.
        ends.extend(&hold("y", 2), 15);
        assert_eq!(ends.over(9), []);
        assert_eq!(ends.over(10), [hold("y", 1)]);
        assert_eq!(ends.over(14), []);
        assert_eq!(ends.over(15), [hold("x", 1)]);
        assert_eq!(ends.over(20), []);
    }
}
