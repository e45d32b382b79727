//! Timeline of a group or a duty: its audit trail, and the commits that the histories of its
//! checkpoints keep.

use std::collections::BTreeMap;
use std::fmt;

use serde::ser::SerializeSeq as _;
use serde::{Serialize, Serializer};
use serde_json::json;
use tenure_core::store::{AuditEntry, AuditKind, Checkpoint};
use tenure_core::text::counted;
use tenure_core::{Code, DutyId, DutyKey, Epoch, InstanceId, Store};
use tenure_store::signing::inspect;

use crate::audit::read_pages;
use crate::clock;
use crate::error::{OperateError, nothing_happened};
use crate::explain::PastTime;
use crate::pause::Scope;
use crate::serialize::{millis, timestamp};

/// Part of a timeline to read.
#[derive(Clone, Debug)]
pub struct TimelineOptions {
    /// Whole group, or one duty.
    pub scope: Scope,
    /// Only events at or after this time.
    pub since: Option<PastTime>,
    /// Only events at or before this time.
    pub until: Option<PastTime>,
    /// Maximum number of events: the newest ones.
    pub limit: usize,
}

/// Progress of reading a timeline.
#[derive(Clone, Copy, Debug)]
pub enum TimelineProgress {
    /// Number of audit entries that were read.
    Entries(usize),
    /// Number of duties whose commits were read, and number of all.
    Duties(usize, usize),
}

impl fmt::Display for TimelineProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries(count) => {
                write!(f, "reading the audit trail: {}", counted(*count, "entry", "entries"))
            }
            Self::Duties(done, all) => write!(f, "reading commits: {done} of {all} duties"),
        }
    }
}

/// An entry of the audit trail, or a commit.
#[derive(Clone, Debug)]
pub struct TimelineEvent {
    /// The store's wall clock.
    pub unix_ms: u64,
    /// Kind of the audit entry, or `committed`.
    pub event: &'static str,
    /// Duty; `None` for sessions.
    pub duty: Option<DutyKey>,
    /// Epoch; `None` for sessions.
    pub epoch: Option<Epoch>,
    /// Instance.
    pub instance: InstanceId,
    /// Reason of an entry.
    pub reason: String,
    /// Version and size in bytes of a commit.
    pub commit: Option<(u64, usize)>,
}

impl Serialize for TimelineEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (version, bytes) = self.commit.unzip();
        let reason = self.commit.is_none().then_some(&self.reason);
        json!({
            "at": timestamp(self.unix_ms),
            "unix_ms": self.unix_ms,
            "event": self.event,
            "duty": self.duty.as_ref().map(ToString::to_string),
            "epoch": self.epoch.map(Epoch::get),
            "instance": self.instance.to_string(),
            "reason": reason,
            "version": version,
            "bytes": bytes,
        })
        .serialize(serializer)
    }
}

/// Events of a group or a duty.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// Group, or duty as GROUP/ID.
    pub of: String,
    /// Beginning of the period, in milliseconds since 1970.
    pub since_unix_ms: Option<u64>,
    /// End of the period.
    pub until_unix_ms: Option<u64>,
    /// Time of the oldest entry of the group's audit trail.
    pub trail_begins_unix_ms: Option<u64>,
    /// Number of older events of the period, beyond the limit.
    pub omitted: u64,
    /// Parts of the period that the store does not cover.
    pub notes: Vec<String>,
    /// Events, oldest first.
    #[serde(serialize_with = "sorted")]
    pub events: TimelineEvents,
}

/// Events in their order.
#[derive(Clone, Debug, Default)]
pub struct TimelineEvents(BTreeMap<EventOrder, TimelineEvent>);

impl TimelineEvents {
    /// Events, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &TimelineEvent> {
        self.0.values()
    }
}

fn sorted<S: Serializer>(events: &TimelineEvents, serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(events.0.len()))?;
    events.iter().try_for_each(|event| list.serialize_element(event))?;
    list.end()
}

/// Order of events: by time; in the same millisecond as in the trail, commits within their hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EventOrder {
    unix_ms: u64,
    /// Sequence number of an entry; for a commit, of the newest entry before it.
    seq: u64,
    /// Zero for an entry.
    version: u64,
    duty: Option<DutyId>,
}

/// Reads a timeline. At most `limit` events and one page of the trail are in memory.
pub async fn timeline(
    store: &dyn Store,
    options: &TimelineOptions,
    observe: &mut dyn FnMut(TimelineProgress),
) -> Result<Timeline, OperateError> {
    let TimelineOptions { scope, since, until, limit } = options;
    let [since, until] = [resolve(store, *since).await?, resolve(store, *until).await?];
    if since.zip(until).is_some_and(|(since, until)| since > until) {
        let what = "the period ends before it begins";
        return Err(OperateError::refused(Code::BadInput, what));
    }
    let mut reader = TimelineReader::new(*limit, (since.unwrap_or(0), until.unwrap_or(u64::MAX)));
    let group = scope.group();
    let duty = match scope {
        Scope::Group(_) => None,
        Scope::Duty(duty) => Some(duty),
    };
    let mut count = 0;
    read_pages(store, group, 0, |page| {
        count += page.len();
        observe(TimelineProgress::Entries(count));
        page.into_iter().for_each(|entry| reader.add_entry(entry, duty));
    })
    .await?;
    let duties = match duty {
        Some(duty) => vec![duty.clone()],
        None => {
            let holders = store.holders(group).await.map_err(nothing_happened)?;
            holders.into_iter().map(|holder| holder.duty).collect()
        }
    };
    reader.read_commits(store, &duties, observe).await?;
    if !reader.known && !exists(store, scope).await? {
        return Err(OperateError::not_there(match scope {
            Scope::Group(group) => format!("the group {group}"),
            Scope::Duty(duty) => format!("the duty {duty} was never granted"),
        }));
    }
    let mut notes = std::mem::take(&mut reader.notes);
    let is_late = |begins: &u64| since.is_some_and(|since| *begins > since);
    if let Some(begins) = reader.begins.filter(is_late) {
        let what = format!("the audit trail of {group} begins at {}", timestamp(begins));
        if until.is_some_and(|until| until < begins) && reader.events.is_empty() {
            return Err(OperateError::refused(Code::NoRecord, what));
        }
        notes.push(format!("{what}: earlier entries, if there were any, are not kept"));
    }
    if reader.cut > 0 {
        let duties = counted(reader.cut, "duty", "duties");
        notes.push(format!("the oldest commits of {duties} are not kept any more"));
    }
    Ok(Timeline {
        of: duty.map_or_else(|| group.to_string(), ToString::to_string),
        since_unix_ms: since,
        until_unix_ms: until,
        trail_begins_unix_ms: reader.begins,
        omitted: reader.omitted,
        notes,
        events: TimelineEvents(reader.events),
    })
}

/// Returns a time in milliseconds since 1970.
async fn resolve(store: &dyn Store, time: Option<PastTime>) -> Result<Option<u64>, OperateError> {
    Ok(match time {
        None => None,
        Some(PastTime::At(ms)) => Some(u64::try_from(ms).unwrap_or(0)),
        Some(PastTime::Ago(ago)) => Some(clock::now(store).await?.saturating_sub(millis(ago))),
    })
}

/// Whether the store knows a group or a duty without events.
async fn exists(store: &dyn Store, scope: &Scope) -> Result<bool, OperateError> {
    let known = match scope {
        Scope::Group(group) => store.groups().await.map(|groups| groups.contains(group)),
        Scope::Duty(duty) => {
            let holders = store.holders(&duty.group).await;
            holders.map(|all| all.iter().any(|holder| holder.duty == *duty))
        }
    };
    Ok(known.map_err(nothing_happened)?)
}

#[derive(Default)]
struct TimelineReader {
    events: BTreeMap<EventOrder, TimelineEvent>,
    limit: usize,
    period: (u64, u64),
    omitted: u64,
    /// Time of the oldest entry.
    begins: Option<u64>,
    /// Whether anything is recorded, in the period or not.
    known: bool,
    /// Number of duties with older commits that are not kept.
    cut: usize,
    notes: Vec<String>,
}

impl TimelineReader {
    fn new(limit: usize, period: (u64, u64)) -> Self {
        Self { limit, period, ..Self::default() }
    }

    /// Adds an entry of the group, if it is about the duty, or any if there is none.
    fn add_entry(&mut self, entry: AuditEntry, only: Option<&DutyKey>) {
        self.begins = Some(self.begins.map_or(entry.unix_ms, |at| at.min(entry.unix_ms)));
        if only.is_some() && entry.duty.as_ref() != only {
            return;
        }
        self.known = true;
        let AuditEntry { seq, unix_ms, kind, instance, duty, epoch, reason } = entry;
        let event = kind.as_str();
        let event = TimelineEvent { unix_ms, event, duty, epoch, instance, reason, commit: None };
        self.add(EventOrder { unix_ms, seq, version: 0, duty: None }, event);
    }

    async fn read_commits(
        &mut self,
        store: &dyn Store,
        duties: &[DutyKey],
        observe: &mut dyn FnMut(TimelineProgress),
    ) -> Result<(), OperateError> {
        for (n, duty) in duties.iter().enumerate() {
            observe(TimelineProgress::Duties(n, duties.len()));
            match store.history(duty).await {
                Ok(history) => {
                    self.known |= !history.is_empty();
                    self.cut += usize::from(self.add_commits(duty, &history));
                }
                // One damaged checkpoint does not hide the events of the others.
                Err(error) if error.code() == Code::Damaged => {
                    self.known = true;
                    let problem = error.problem();
                    self.notes.push(format!("the commits of {duty} cannot be read: {problem}"));
                }
                Err(error) => return Err(nothing_happened(error).into()),
            }
        }
        Ok(())
    }

    /// Adds the commits of a duty. Returns whether older ones of the period are not kept.
    fn add_commits(&mut self, duty: &DutyKey, history: &[Checkpoint]) -> bool {
        for checkpoint in history {
            let Checkpoint { version, epoch, instance, unix_ms, .. } = checkpoint;
            let (unix_ms, version) = (*unix_ms, version.get());
            let seq = self.newest_before(duty, *epoch, unix_ms);
            let order = EventOrder { unix_ms, seq, version, duty: Some(duty.id.clone()) };
            let bytes = inspect(None, duty, checkpoint).payload.len();
            let event = TimelineEvent {
                unix_ms,
                event: "committed",
                duty: Some(duty.clone()),
                epoch: Some(*epoch),
                instance: instance.clone(),
                reason: String::new(),
                commit: Some((version, bytes)),
            };
            self.add(order, event);
        }
        // Versions count from 1.
        let oldest = history.last();
        oldest.is_some_and(|oldest| oldest.version.get() > 1 && oldest.unix_ms > self.period.0)
    }

    /// Number of the newest entry of this millisecond that a commit under this epoch follows.
    fn newest_before(&self, duty: &DutyKey, epoch: Epoch, unix_ms: u64) -> u64 {
        let order = |seq| EventOrder { unix_ms, seq, version: 0, duty: None };
        let same = self.events.range(order(0)..=order(u64::MAX));
        let before = same.filter(|(_, event)| {
            let granted = event.epoch == Some(epoch) && event.event == AuditKind::Granted.as_str();
            let is_earlier = event.epoch < Some(epoch) || granted;
            event.commit.is_none() && event.duty.as_ref() == Some(duty) && is_earlier
        });
        before.map(|(order, _)| order.seq).max().unwrap_or(0)
    }

    /// Adds an event of the period; drops the oldest one beyond the limit.
    fn add(&mut self, order: EventOrder, event: TimelineEvent) {
        if !(self.period.0..=self.period.1).contains(&event.unix_ms) {
            return;
        }
        self.events.insert(order, event);
        if self.events.len() > self.limit {
            self.events.pop_first();
            self.omitted += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::{Document, Version};

    use super::*;

    const KINDS: [AuditKind; 4] =
        [AuditKind::Granted, AuditKind::Expired, AuditKind::Granted, AuditKind::Released];

    fn reader(limit: usize) -> TimelineReader {
        TimelineReader::new(limit, (0, 9))
    }

    fn duty() -> DutyKey {
        DutyKey::new("g", "d").unwrap()
    }

    fn entry(seq: u64, unix_ms: u64, kind: AuditKind, epoch: u64) -> AuditEntry {
        AuditEntry {
            seq,
            unix_ms,
            kind,
            instance: InstanceId::new("a").unwrap(),
            duty: Some(duty()),
            epoch: Epoch::new(epoch).ok(),
            reason: String::new(),
        }
    }

    fn commit(version: u64, epoch: u64, unix_ms: u64) -> Checkpoint {
        Checkpoint {
            version: Version::new(version).unwrap(),
            epoch: Epoch::new(epoch).unwrap(),
            instance: InstanceId::new("a").unwrap(),
            document: Document::new(*b"xyz").unwrap(),
            unix_ms,
        }
    }

    fn told(reader: &TimelineReader) -> Vec<String> {
        let events = reader.events.values();
        let line = |event: &TimelineEvent| format!("{} {}", event.event, event.epoch.unwrap());
        events.map(line).collect()
    }

    /// In one millisecond, a commit is between the grant and the end of its hold.
    #[test]
    fn a_commit_is_within_its_hold() {
        let mut reader = reader(10);
        for (n, kind) in KINDS.into_iter().enumerate() {
            reader.add_entry(entry(n as u64 + 1, 5, kind, [1, 1, 2, 2][n]), None);
        }
        let cut = reader.add_commits(&duty(), &[commit(2, 2, 5), commit(1, 1, 5)]);
        let expected =
            ["granted 1", "committed 1", "expired 1", "granted 2", "committed 2", "released 2"];
        assert_eq!((told(&reader), cut), (expected.map(str::to_owned).to_vec(), false));
        let commits = reader.events.values().filter_map(|event| event.commit);
        assert_eq!(commits.collect::<Vec<_>>(), [(1, 3), (2, 3)]);
    }

    #[test]
    fn the_newest_events_are_kept_and_the_others_counted() {
        let mut reader = reader(2);
        for n in 1..=4 {
            reader.add_entry(entry(n, n, AuditKind::Granted, n), None);
        }
        // Outside of the period.
        reader.add_entry(entry(5, 10, AuditKind::Granted, 5), None);
        assert_eq!(
            (told(&reader), reader.omitted),
            (vec!["granted 3".into(), "granted 4".into()], 2)
        );
        assert!(reader.add_commits(&duty(), &[commit(7, 4, 4)]), "older versions existed");
        reader.period.0 = 6;
        assert!(!reader.add_commits(&duty(), &[commit(7, 4, 4)]), "they are before the period");
    }
}
