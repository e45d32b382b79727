//! Overlapping beliefs to hold a duty: measured, not judged. If a store ends sessions early, for
//! example after a restart, two instances may act on one duty; fencing covers that.

use std::collections::BTreeMap;

use crate::record::{InstanceLog, InstanceRecord, Under};

/// Measured beliefs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Belief {
    /// Total nanoseconds during which two instances believed that they may act on one duty.
    pub overlap: u64,
    /// The longest such overlap.
    pub longest: u64,
    /// Effects without a fence that came after an effect of a newer epoch.
    pub plain_late: usize,
    /// Effects without a fence.
    pub plain: usize,
}

/// One span of belief.
#[derive(Clone, Copy, Debug)]
struct BeliefSpan {
    from: u64,
    until: u64,
    epoch: u64,
}

/// Measures the beliefs of all instances.
pub fn measure(told: &[InstanceLog]) -> Belief {
    let mut belief = Belief::default();
    let mut spans: BTreeMap<String, Vec<BeliefSpan>> = BTreeMap::new();
    let mut plain: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for one in told {
        for (under, span) in spans_of(&one.lines) {
            spans.entry(under.duty).or_default().push(span);
        }
        for line in &one.lines {
            if let InstanceRecord::Plain { under, after, .. } = line {
                plain.entry(&under.duty).or_default().push((*after, under.epoch));
            }
        }
    }
    for spans in spans.values_mut() {
        spans.sort_by_key(|span| (span.from, span.until));
        let mut last: Option<BeliefSpan> = None;
        for span in spans {
            if let Some(before) = last.filter(|before| before.epoch != span.epoch) {
                let overlap = before.until.min(span.until).saturating_sub(span.from);
                belief.overlap += overlap;
                belief.longest = belief.longest.max(overlap);
            }
            if last.is_none_or(|before| before.until < span.until) {
                last = Some(*span);
            }
        }
    }
    for effects in plain.values_mut() {
        effects.sort_unstable();
        belief.plain += effects.len();
        let mut newest = 0;
        for (_, epoch) in effects {
            belief.plain_late += usize::from(*epoch < newest);
            newest = newest.max(*epoch);
        }
    }
    belief
}

/// Returns the beliefs of one instance, from its records of changed holds.
fn spans_of(lines: &[InstanceRecord]) -> Vec<(Under, BeliefSpan)> {
    let mut open: BTreeMap<&Under, BeliefSpan> = BTreeMap::new();
    let mut spans = Vec::new();
    for line in lines {
        let InstanceRecord::Stands { under, at, until } = line else { continue };
        let before = open.get(under).copied();
        // A belief ends at its deadline, or when the instance learns of the loss.
        let goes_on = before.is_some_and(|before| before.until >= *at && *until > 0);
        match before {
            Some(mut span) if goes_on => {
                span.until = *until;
                open.insert(under, span);
            }
            _ => {
                if let Some(mut span) = before {
                    span.until = span.until.min(*at);
                    spans.push((under.clone(), span));
                    open.remove(under);
                }
                if *until > *at {
                    open.insert(under, BeliefSpan { from: *at, until: *until, epoch: under.epoch });
                }
            }
        }
    }
    spans.extend(open.into_iter().map(|(under, span)| (under.clone(), span)));
    spans
}
