//! Invariants of histories, checked by tests, simulation and chaos runs.
//!
//! | name | invariant |
//! |---|---|
//! | L1 | at most one instance is granted a duty under one epoch |
//! | L2 | the epochs of a duty strictly grow from grant to grant |
//! | L3 | no effect is accepted under an older epoch once one under a newer epoch was |
//! | C1 | a checkpoint's version and epoch never go back |
//! | D1 | no event takes effect twice |
//! | B1 | at any instant at most one instance believes that it may act on a duty |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{DutyKey, Epoch, InstanceId, Version};

/// One accepted step of a history, in the order in which the store or the resource accepted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The store granted a duty.
    Granted {
        /// The duty.
        duty: DutyKey,
        /// The epoch of the grant.
        epoch: Epoch,
        /// The new holder.
        instance: InstanceId,
    },
    /// A resource accepted an effect.
    Effect {
        /// The duty.
        duty: DutyKey,
        /// The epoch of the work.
        epoch: Epoch,
        /// The instance that sent it.
        instance: InstanceId,
        /// The event.
        event: String,
    },
    /// The store saved a checkpoint.
    Committed {
        /// The duty.
        duty: DutyKey,
        /// The epoch of the write.
        epoch: Epoch,
        /// The new version.
        version: Version,
    },
    /// An instance believed that it may act, by its own clock and deadline (R5). Only the
    /// simulation can record this, because it sees all clocks. B1 holds while clocks run within the
    /// margin and the store ends no session early.
    Believed {
        /// The duty.
        duty: DutyKey,
        /// The epoch of its hold.
        epoch: Epoch,
        /// The instance.
        instance: InstanceId,
        /// Start of the belief, in nanoseconds of a shared time.
        from: u64,
        /// End of the belief, exclusive.
        until: u64,
    },
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant: `L1`, `L2`, `L3`, `C1`, `D1` or `B1`.
    pub rule: &'static str,
    /// The index of the step that broke it.
    pub at: usize,
    /// Description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken at step {}: {}", self.rule, self.at, self.what)
    }
}

/// Checks all invariants on a history; reports the first violation of each.
pub fn check(history: &[Step]) -> Result<(), Vec<Violation>> {
    let checks = [
        one_instance_per_epoch,
        epochs_grow,
        effects_never_go_back,
        checkpoint_never_goes_back,
        no_event_twice,
        one_believes,
    ];
    let broken: Vec<_> = checks.iter().filter_map(|check| check(history).err()).collect();
    if broken.is_empty() { Ok(()) } else { Err(broken) }
}

/// Finds the first step for which `broken` returns a violation.
fn first_violation<'a>(
    rule: &'static str,
    history: &'a [Step],
    mut broken: impl FnMut(&'a Step) -> Option<String>,
) -> Result<(), Violation> {
    let mut steps = history.iter().enumerate();
    let found = steps.find_map(|(at, step)| Some(Violation { rule, at, what: broken(step)? }));
    found.map_or(Ok(()), Err)
}

/// Checks L1.
pub fn one_instance_per_epoch(history: &[Step]) -> Result<(), Violation> {
    let mut owner = BTreeMap::new();
    first_violation("L1", history, |step| {
        let (Step::Granted { duty, epoch, instance } | Step::Effect { duty, epoch, instance, .. }) =
            step
        else {
            return None;
        };
        let first = *owner.entry((duty, epoch)).or_insert(instance);
        let what = || format!("{duty} epoch {epoch} belongs to {first} and to {instance}");
        (first != instance).then(what)
    })
}

/// Checks L2.
pub fn epochs_grow(history: &[Step]) -> Result<(), Violation> {
    let mut newest = BTreeMap::new();
    first_violation("L2", history, |step| {
        let Step::Granted { duty, epoch, .. } = step else { return None };
        let before = newest.insert(duty, epoch).filter(|before| *before >= epoch)?;
        Some(format!("{duty} was granted epoch {epoch} after {before}"))
    })
}

/// Checks L3.
pub fn effects_never_go_back(history: &[Step]) -> Result<(), Violation> {
    let mut newest = BTreeMap::new();
    first_violation("L3", history, |step| {
        let Step::Effect { duty, epoch, .. } = step else { return None };
        let before = newest.insert(duty, epoch).filter(|before| *before > epoch)?;
        Some(format!("{duty} took an effect under epoch {epoch} after {before}"))
    })
}

/// Checks C1.
pub fn checkpoint_never_goes_back(history: &[Step]) -> Result<(), Violation> {
    let mut newest = BTreeMap::new();
    first_violation("C1", history, |step| {
        let Step::Committed { duty, epoch, version } = step else { return None };
        let before = newest.insert(duty, (version, epoch));
        let (last, older) = before.filter(|(last, older)| *last >= version || *older > epoch)?;
        let after = format!("after version {last} epoch {older}");
        Some(format!("{duty} was committed as version {version} epoch {epoch} {after}"))
    })
}

/// Checks D1.
pub fn no_event_twice(history: &[Step]) -> Result<(), Violation> {
    let mut seen = BTreeSet::new();
    first_violation("D1", history, |step| {
        let Step::Effect { duty, event, .. } = step else { return None };
        let what = || format!("event {event:?} of {duty} took effect twice");
        (!seen.insert((duty, event))).then(what)
    })
}

/// Checks B1.
pub fn one_believes(history: &[Step]) -> Result<(), Violation> {
    let mut spans = Vec::new();
    for (at, step) in history.iter().enumerate() {
        if let Step::Believed { duty, epoch, instance, from, until } = step
            && from < until
        {
            spans.push((duty, *from, *until, instance, *epoch, at));
        }
    }
    spans.sort();
    // The span with the latest end so far; a span that begins before that end overlaps it.
    let mut longest: Option<(&DutyKey, u64, &InstanceId, Epoch)> = None;
    for (duty, from, until, instance, epoch, at) in spans {
        if let Some((same, end, other, older)) = longest.filter(|before| before.0 == duty) {
            if from < end && (other, older) != (instance, epoch) {
                let what = format!(
                    "{duty}: {other} under epoch {older} and {instance} under epoch {epoch} both \
                     believed from {from} to {}",
                    end.min(until)
                );
                return Err(Violation { rule: "B1", at, what });
            }
            if until <= end {
                longest = Some((same, end, other, older));
                continue;
            }
        }
        longest = Some((duty, until, instance, epoch));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duty() -> DutyKey {
        DutyKey::new("g", "d").unwrap()
    }

    fn granted(epoch: u64, instance: &str) -> Step {
        let instance = InstanceId::new(instance).unwrap();
        Step::Granted { duty: duty(), epoch: Epoch::new(epoch).unwrap(), instance }
    }

    fn effect(epoch: u64, instance: &str, event: &str) -> Step {
        let instance = InstanceId::new(instance).unwrap();
        let event = event.to_owned();
        Step::Effect { duty: duty(), epoch: Epoch::new(epoch).unwrap(), instance, event }
    }

    fn committed(epoch: u64, version: u64) -> Step {
        let version = Version::new(version).unwrap();
        Step::Committed { duty: duty(), epoch: Epoch::new(epoch).unwrap(), version }
    }

    fn believed(epoch: u64, instance: &str, from: u64, until: u64) -> Step {
        let instance = InstanceId::new(instance).unwrap();
        let epoch = Epoch::new(epoch).unwrap();
        Step::Believed { duty: duty(), epoch, instance, from, until }
    }

    fn broken(history: &[Step]) -> Vec<&'static str> {
        check(history).err().unwrap_or_default().iter().map(|v| v.rule).collect()
    }

    #[test]
    fn a_sound_history_passes() {
        let history = [
            granted(1, "a"),
            effect(1, "a", "x"),
            committed(1, 1),
            granted(2, "b"),
            effect(2, "b", "y"),
            committed(2, 2),
            believed(2, "b", 10, 20),
            believed(1, "a", 3, 8),
            believed(1, "a", 7, 10),
        ];
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn each_planted_fault_is_caught_by_its_own_rule() {
        assert_eq!(broken(&[granted(1, "a"), effect(1, "b", "x")]), ["L1"]);
        assert_eq!(broken(&[granted(2, "a"), granted(1, "a")]), ["L2"]);
        assert_eq!(broken(&[granted(2, "a"), granted(2, "a")]), ["L2"]);
        assert_eq!(broken(&[effect(2, "b", "x"), effect(1, "a", "y")]), ["L3"]);
        assert_eq!(broken(&[committed(1, 2), committed(1, 2)]), ["C1"]);
        assert_eq!(broken(&[committed(2, 1), committed(1, 2)]), ["C1"]);
        assert_eq!(broken(&[effect(1, "a", "x"), effect(1, "a", "x")]), ["D1"]);
        assert_eq!(broken(&[believed(2, "b", 9, 20), believed(1, "a", 3, 10)]), ["B1"]);
        // Also with a short span between them.
        let nested = [believed(1, "a", 0, 9), believed(1, "a", 1, 2), believed(2, "b", 8, 9)];
        assert_eq!(broken(&nested), ["B1"]);
    }
}
