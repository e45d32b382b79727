//! Responses that a primary gave alone, so that a standby that was cut off cannot have them.

use std::ops::Range;

use crate::history::{FinalState, WrittenVersion};
use crate::record::{CommitResult, InstanceLog, InstanceRecord, Under, is_grant};

/// Responses of a primary alone that are not stored, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spared {
    /// Acknowledged commits.
    pub commits: usize,
    /// Checkpoints that were read.
    pub reads: usize,
    /// Grants.
    pub grants: usize,
}

/// Removes responses that were given within `alone` and are not stored. The rest must be sound as
/// if no server had failed.
pub fn spare(
    told: &[InstanceLog],
    stored: &FinalState,
    alone: &Range<u64>,
) -> (Vec<InstanceLog>, Spared) {
    let mut spared = Spared::default();
    let rest = told.iter().map(|one| {
        let mut lines = Vec::with_capacity(one.lines.len());
        for (at, line) in one.lines.iter().enumerate() {
            let count = match line {
                InstanceRecord::Commit {
                    under,
                    event,
                    before,
                    after,
                    outcome: CommitResult::Saved(version),
                } => {
                    let instance = one.instance.clone();
                    let (version, epoch, event) = (*version, under.epoch, *event);
                    let written = WrittenVersion { version, epoch, instance, event };
                    // The response may be received just after the server has died.
                    let lost = *after >= alone.start && *before < alone.end;
                    let lost = lost && !stored.may_have(&under.duty, &written);
                    lost.then_some(&mut spared.commits)
                }
                InstanceRecord::Found { under, version, instance, event } => {
                    let (version, epoch, event) = (*version, under.epoch, *event);
                    let written =
                        WrittenVersion { version, epoch, instance: instance.clone(), event };
                    let lost = around(&one.lines, at, alone);
                    let lost = lost && !stored.may_have(&under.duty, &written);
                    lost.then_some(&mut spared.reads)
                }
                InstanceRecord::Record { at, under: Some(under), change, .. }
                    if is_grant(change) =>
                {
                    let lost = alone.contains(at) && !stored.granted(under, &one.instance);
                    lost.then_some(&mut spared.grants)
                }
                _ => None,
            };
            match count {
                Some(count) => *count += 1,
                None => lines.push(line.clone()),
            }
        }
        InstanceLog { instance: one.instance.clone(), lines }
    });
    (rest.collect(), spared)
}

/// Whether a record without a time of its own may have been written within these times.
fn around(lines: &[InstanceRecord], at: usize, times: &Range<u64>) -> bool {
    let before = lines[..at].iter().rev().find_map(InstanceRecord::time).unwrap_or(0);
    let after = lines[at..].iter().find_map(InstanceRecord::time).unwrap_or(u64::MAX);
    before < times.end && after >= times.start
}

impl FinalState {
    /// Whether this version was written, as far as the kept history reaches.
    fn may_have(&self, duty: &str, written: &WrittenVersion) -> bool {
        let Some((_, kept)) = self.kept.iter().find(|(name, _)| name == duty) else {
            return false;
        };
        let oldest = kept.iter().map(|one| one.version).min();
        oldest.is_some_and(|oldest| written.version < oldest) || kept.contains(written)
    }

    fn granted(&self, under: &Under, instance: &str) -> bool {
        let grant = (&*under.duty, under.epoch, instance);
        self.grants.iter().any(|(duty, epoch, who)| (&**duty, *epoch, &**who) == grant)
    }
}
