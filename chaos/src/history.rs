//! Merged history of all files, and its checks.
//!
//! Accepted commits of a duty are totally ordered by the version that the store gave them: that is
//! the order in which it accepted them. The machine's clock shows independently which call ended
//! before another began. Both orders must agree, and `tenure::invariant` checks the first.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use tenure::invariant::{self, Step};
use tenure::store::{AuditEntry, AuditKind, AuditRange, Checkpoint};
use tenure::{DutyKey, Epoch, GroupName, InstanceId, Store, Version};

use crate::instance::event_of;
use crate::record::{CommitResult, InstanceLog, InstanceRecord, Under, is_grant};

/// Contents of the store at the end.
#[derive(Debug, Default)]
pub struct FinalState {
    /// Every grant, as the duty, the epoch and the instance, in the store's order.
    pub grants: Vec<(String, u64, String)>,
    /// Remaining history of each duty.
    pub kept: Vec<(String, Vec<WrittenVersion>)>,
}

/// One version of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenVersion {
    /// Number of the write.
    pub version: u64,
    /// The epoch it was written under.
    pub epoch: u64,
    /// Instance that wrote it.
    pub instance: String,
    /// The event.
    pub event: u64,
}

/// An accepted effect, with its start and end.
#[derive(Clone, Debug)]
struct AcceptedEffect {
    epoch: u64,
    instance: String,
    event: u64,
    version: Option<u64>,
    before: u64,
    after: u64,
}

/// Merged history of all files and the store.
#[derive(Debug, Default)]
pub struct RunHistory {
    group: String,
    grants: Vec<(String, u64, String)>,
    /// Versions by duty, from whatever source.
    written: BTreeMap<(String, u64), WrittenVersion>,
    accepted: BTreeMap<String, Vec<AcceptedEffect>>,
    /// Grants as the instances recorded them.
    recorded: Vec<(Under, String)>,
    /// Contradictions between two sources.
    contradictions: Vec<String>,
}

impl FinalState {
    /// Reads the grants and histories of these duties from the store.
    pub async fn read(store: &dyn Store, group: &str, duties: u32) -> Result<Self> {
        let name = GroupName::new(group)?;
        let mut stored = Self::default();
        let mut range = AuditRange::first(5_000);
        loop {
            let page: Vec<AuditEntry> = store.audit(&name, range).await?;
            let Some(last) = page.last() else { break };
            range.after = last.seq;
            for entry in page.into_iter().filter(|entry| entry.kind == AuditKind::Granted) {
                let duty = entry.duty.context("a grant without a duty")?.id.to_string();
                let epoch = entry.epoch.context("a grant without an epoch")?.get();
                stored.grants.push((duty, epoch, entry.instance.to_string()));
            }
        }
        for duty in 0..duties {
            let history = store.history(&DutyKey::new(group, duty.to_string())?).await?;
            let kept = history.iter().map(WrittenVersion::of).collect::<Result<_>>()?;
            stored.kept.push((duty.to_string(), kept));
        }
        Ok(stored)
    }
}

impl WrittenVersion {
    fn of(checkpoint: &Checkpoint) -> Result<Self> {
        Ok(Self {
            version: checkpoint.version.get(),
            epoch: checkpoint.epoch.get(),
            instance: checkpoint.instance.to_string(),
            event: event_of(&checkpoint.document)?,
        })
    }
}

impl RunHistory {
    /// Merges all records with the state of the store.
    pub fn merge(group: &str, told: &[InstanceLog], stored: &FinalState) -> Self {
        let grants = stored.grants.clone();
        let mut history = Self { group: group.to_owned(), grants, ..Self::default() };
        for one in told {
            for line in &one.lines {
                history.add(&one.instance, line);
            }
        }
        for (duty, kept) in &stored.kept {
            let told: Option<u64> = history.newest(duty);
            let newest = kept.iter().map(|written| written.version).max();
            if told > newest {
                let what =
                    format!("{duty}: version {told:?} was acknowledged, {newest:?} is stored");
                history.contradictions.push(what);
            }
            for written in kept {
                history.write(duty, written.clone());
            }
        }
        history
    }

    fn newest(&self, duty: &str) -> Option<u64> {
        let of = self.written.range((duty.to_owned(), 0)..=(duty.to_owned(), u64::MAX));
        of.last().map(|((_, version), _)| *version)
    }

    fn add(&mut self, instance: &str, line: &InstanceRecord) {
        match line {
            InstanceRecord::Found { under, version, instance, event } => {
                let (version, epoch, event) = (*version, under.epoch, *event);
                let written = WrittenVersion { version, epoch, instance: instance.clone(), event };
                self.write(&under.duty, written);
            }
            InstanceRecord::Commit { under, event, before, after, outcome } => {
                let version = match outcome {
                    CommitResult::Saved(version) => Some(*version),
                    CommitResult::Unfenced => None,
                    _ => return,
                };
                let (epoch, instance, event) = (under.epoch, instance.to_owned(), *event);
                if let Some(version) = version {
                    let instance = instance.clone();
                    self.write(&under.duty, WrittenVersion { version, epoch, instance, event });
                }
                let (before, after) = (*before, *after);
                let one = AcceptedEffect { epoch, instance, event, version, before, after };
                self.accepted.entry(under.duty.clone()).or_default().push(one);
            }
            InstanceRecord::Record { change, under: Some(under), .. } if is_grant(change) => {
                self.recorded.push((under.clone(), instance.to_owned()));
            }
            _ => {}
        }
    }

    fn write(&mut self, duty: &str, written: WrittenVersion) {
        let key = (duty.to_owned(), written.version);
        let first = self.written.entry(key).or_insert_with(|| written.clone());
        if *first != written {
            let what = format!("{duty}: one version written twice: {first:?} and {written:?}");
            self.contradictions.push(what);
        }
    }

    /// Returns all violations; empty if there are none.
    pub fn judge(&self) -> Result<Vec<String>> {
        let mut wrong = self.contradictions.clone();
        let mut steps = self.grants()?;
        steps.extend(self.effects()?);
        if let Err(broken) = invariant::check(&steps) {
            wrong.extend(broken.iter().map(ToString::to_string));
        }
        for (under, instance) in &self.recorded {
            steps.push(self.granted(&under.duty, under.epoch, instance)?);
        }
        if let Err(broken) = invariant::one_instance_per_epoch(&steps) {
            wrong.push(format!("as recorded by the instances: {broken}"));
        }
        wrong.extend(self.skipped());
        wrong.extend(self.out_of_time().into_iter().map(|(_, what)| what));
        Ok(wrong)
    }

    /// Returns the number of accepted effects that overlapped those of a newer epoch.
    pub fn overlapping(&self) -> usize {
        self.out_of_time().len()
    }

    fn key(&self, duty: &str) -> Result<DutyKey> {
        Ok(DutyKey::new(self.group.clone(), duty)?)
    }

    fn granted(&self, duty: &str, epoch: u64, instance: &str) -> Result<Step> {
        let (epoch, instance) = (Epoch::new(epoch)?, InstanceId::new(instance)?);
        Ok(Step::Granted { duty: self.key(duty)?, epoch, instance })
    }

    fn grants(&self) -> Result<Vec<Step>> {
        let step =
            |(duty, epoch, instance): &(String, u64, String)| self.granted(duty, *epoch, instance);
        self.grants.iter().map(step).collect()
    }

    /// Returns commits and their effects by version; effects without a version by time.
    fn effects(&self) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        let mut last: Option<(&str, &WrittenVersion)> = None;
        for ((name, _), written) in &self.written {
            let (duty, epoch) = (self.key(name)?, Epoch::new(written.epoch)?);
            let version = Version::new(written.version)?;
            steps.push(Step::Committed { duty: duty.clone(), epoch, version });
            // A hold may write the same event again if it does not know whether it was stored.
            let again = last.is_some_and(|(same, before)| {
                let by = |one: &WrittenVersion| (one.epoch, one.event, one.instance.clone());
                same == name && by(before) == by(written)
            });
            if !again {
                let instance = InstanceId::new(written.instance.clone())?;
                let event = written.event.to_string();
                steps.push(Step::Effect { duty, epoch, instance, event });
            }
            last = Some((name, written));
        }
        for (duty, accepted) in &self.accepted {
            let duty = self.key(duty)?;
            let mut unfenced: Vec<_> =
                accepted.iter().filter(|one| one.version.is_none()).collect();
            unfenced.sort_by_key(|one| one.before);
            for one in unfenced {
                let (epoch, event) = (Epoch::new(one.epoch)?, one.event.to_string());
                let (duty, instance) = (duty.clone(), InstanceId::new(one.instance.clone())?);
                steps.push(Step::Effect { duty, epoch, instance, event });
            }
        }
        Ok(steps)
    }

    /// Returns skipped events: numbers are consecutive, so no event exceeds its version.
    fn skipped(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut last: Option<(&str, &WrittenVersion)> = None;
        for ((duty, _), written) in &self.written {
            let (version, event) = match last {
                Some((same, before)) if same == duty => (before.version, before.event),
                _ => (0, 0),
            };
            let (versions, events) = (written.version - version, written.event.checked_sub(event));
            if events.is_none_or(|events| events > versions) {
                let written = (written.version, written.event);
                wrong.push(format!(
                    "{duty}: version and event {written:?} after {version}, {event}"
                ));
            }
            last = Some((duty, written));
        }
        wrong
    }

    /// Returns effects that began after one of a newer epoch or later version had been accepted.
    fn out_of_time(&self) -> Vec<(String, String)> {
        let mut wrong = Vec::new();
        for (duty, accepted) in &self.accepted {
            let mut by_start: Vec<_> = accepted.iter().collect();
            by_start.sort_by_key(|one| one.before);
            let mut by_end: Vec<_> = accepted.iter().collect();
            by_end.sort_by_key(|one| one.after);
            let mut ended = by_end.into_iter().peekable();
            let mut newest = (0, None);
            for one in by_start {
                while let Some(before) = ended.next_if(|before| before.after < one.before) {
                    newest = (newest.0.max(before.epoch), newest.1.max(before.version));
                }
                if one.epoch < newest.0 || one.version.is_some_and(|own| Some(own) < newest.1) {
                    let what = format!("{duty}: {one:?} began after {newest:?} was accepted");
                    wrong.push((duty.clone(), what));
                }
            }
        }
        wrong
    }

    /// Returns acknowledged commits that are no longer stored, by the time of their response.
    pub fn lost(&self, stored: &FinalState) -> Vec<u64> {
        let mut lost = Vec::new();
        for (duty, kept) in &stored.kept {
            let newest = kept.iter().map(|written| written.version).max().unwrap_or(0);
            let oldest = kept.iter().map(|written| written.version).min().unwrap_or(0);
            let is_lost = |one: &&AcceptedEffect| {
                let Some(version) = one.version.filter(|version| *version >= oldest) else {
                    return false;
                };
                let same = |written: &WrittenVersion| {
                    let WrittenVersion { epoch, instance, event, .. } = written;
                    (*epoch, instance, *event) == (one.epoch, &one.instance, one.event)
                };
                let found = kept.iter().find(|written| written.version == version);
                version > newest || found.is_some_and(|written| !same(written))
            };
            let accepted = self.accepted.get(duty).map_or(&[][..], Vec::as_slice);
            lost.extend(accepted.iter().filter(is_lost).map(|one| one.after));
        }
        lost
    }

    /// Returns the number of grants to another instance than before.
    pub fn moves(&self) -> usize {
        let mut holders = BTreeMap::new();
        let moved = |(duty, _, instance): &&(String, u64, String)| {
            holders.insert(duty.clone(), instance.clone()).is_some_and(|before| before != *instance)
        };
        self.grants.iter().filter(moved).count()
    }

    /// Returns the number of accepted effects.
    pub fn effects_accepted(&self) -> usize {
        self.accepted.values().map(Vec::len).sum()
    }

    /// Returns the longest time without an accepted effect, for each duty.
    pub fn gaps(&self, from: u64, until: u64) -> Vec<(String, u64)> {
        let gap = |(duty, accepted): (&String, &Vec<AcceptedEffect>)| {
            let mut times: Vec<u64> = accepted.iter().map(|one| one.after).collect();
            times.retain(|time| (from..until).contains(time));
            times.extend([from, until]);
            times.sort_unstable();
            let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
            (duty.clone(), longest.unwrap_or(0))
        };
        self.accepted.iter().map(gap).collect()
    }
}
