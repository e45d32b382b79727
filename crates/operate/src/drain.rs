//! Drain: hands the duties of an instance over to the other members.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::json;
use tenure_core::engine::{DrainMode, GroupConfig};
use tenure_core::store::{Holder, Watch};
use tenure_core::{Code, DutyId, DutyKey, GroupName, InstanceId, Problem, Store, StoreError};
use tokio::time::{sleep, timeout};

use crate::edit::{EditSummary, edit};
use crate::error::OperateError;
use crate::group::{StoredGroup, duties};
use crate::serialize::{optional_text, text};

/// Interval between two reads of the group without a hint from the store.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// A store that does not answer a read within this time counts as away.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Members read the group at least once per second: after this time the instance knows of the
/// drain, and another member has claimed what it gave back.
const SETTLE_TIME: Duration = Duration::from_millis(1_200);

/// A drain to start, or to undo.
#[derive(Clone, Debug)]
pub struct DrainOptions {
    /// Name of the group.
    pub group: GroupName,
    /// Instance to drain.
    pub instance: InstanceId,
    /// Drain mode; `None` undoes the drain.
    pub mode: Option<DrainMode>,
    /// Check everything and change nothing.
    pub dry_run: bool,
}

/// A duty and its current holder.
#[derive(Clone, Debug, Serialize)]
pub struct DutyHolder {
    /// Duty.
    #[serde(serialize_with = "text")]
    pub duty: DutyKey,
    /// Holder; `None` if the duty is free.
    #[serde(serialize_with = "optional_text")]
    pub holder: Option<InstanceId>,
}

impl From<&Holder> for DutyHolder {
    fn from(Holder { duty, holder, .. }: &Holder) -> Self {
        let holder = holder.as_ref().map(|now| now.instance.clone());
        Self { duty: duty.clone(), holder }
    }
}

/// Progress of waiting for a drain.
#[derive(Debug)]
pub enum DrainEvent<'a> {
    /// The group was read.
    Progress(&'a DrainProgress),
    /// The store stopped answering; reads are repeated.
    StoreAway(&'a Problem),
    /// The store answers again.
    StoreBack,
    /// No other member takes duties: the instance keeps the rest until one does.
    NoSuccessor,
}

/// A drain that is in force.
#[derive(Debug)]
pub struct ActiveDrain {
    /// Options it was started with.
    pub options: DrainOptions,
    /// Change of the group's document.
    pub edit: EditSummary,
    /// Progress at the last read of the group.
    pub progress: DrainProgress,
}

/// Puts a drain in force, or undoes it.
pub async fn start(store: &dyn Store, options: DrainOptions) -> Result<ActiveDrain, OperateError> {
    let DrainOptions { group, instance, mode, dry_run } = &options;
    let change = |before: &StoredGroup, document: &mut GroupConfig| {
        let Some(mode) = *mode else {
            if document.drained.remove(instance).is_none() {
                before.live_member(instance)?;
            }
            return Ok(());
        };
        before.participant(instance)?;
        if mode == DrainMode::HandOver && !before.has_successor(document, instance) {
            let what = format!("no other member of {group} can take the duties");
            return Err(OperateError::refused(Code::LastMember, what));
        }
        document.drained.insert(instance.clone(), mode);
        Ok(())
    };
    let (before, _, edit) = edit(store, group, *dry_run, change).await?;
    let mut progress = DrainProgress::new(instance.clone());
    progress.update(&before);
    Ok(ActiveDrain { options, edit, progress })
}

/// The report of a drain: its change, and the duties of the instance with their current holders.
impl Serialize for ActiveDrain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { options: DrainOptions { group, instance, mode, dry_run }, edit, progress } =
            self;
        let duties = progress.holders.iter().map(|(id, holder)| DutyHolder {
            duty: DutyKey { group: group.clone(), id: id.clone() },
            holder: holder.clone(),
        });
        let report = json!({
            "dry_run": dry_run,
            "group": group.to_string(),
            "changed": edit.changed,
            "pruned": edit.pruned,
            "instance": instance.to_string(),
            "how": mode.map(DrainMode::as_str),
            "drained": mode.is_some() && !dry_run && progress.is_drained(),
            "ended": progress.ended,
            "duties": duties.collect::<Vec<_>>(),
            "away": progress.away.as_ref().map(|problem| problem.code.as_str()),
        });
        report.serialize(serializer)
    }
}

impl ActiveDrain {
    /// Waits until the instance holds nothing (`true`) or the time limit has passed (`false`). The
    /// drain stays in force either way, also if this future is dropped.
    pub async fn wait(
        &mut self,
        store: &dyn Store,
        limit: Option<Duration>,
        observe: &mut dyn FnMut(DrainEvent<'_>),
    ) -> Result<bool, StoreError> {
        // The limit counts from here, not from the first poll of the deadline.
        let deadline = limit.map(sleep);
        let time_over = async {
            match deadline {
                Some(deadline) => deadline.await,
                None => pending().await,
            }
        };
        tokio::pin!(time_over);
        let open_timeout = limit.map_or(READ_TIMEOUT, |limit| limit.min(READ_TIMEOUT));
        let watch = timeout(open_timeout, store.watch(&self.options.group)).await;
        let mut watch = watch.ok().and_then(Result::ok);
        let (mut was_empty, mut was_alone) = (false, false);
        loop {
            // The read completes even if the limit passes: the outcome must reflect a whole read.
            let empty = match read(store, &self.options.group).await {
                Ok(group) => {
                    was_alone = self.observe(&group, was_alone, observe);
                    self.progress.left().next().is_none()
                }
                Err(error) => {
                    self.progress.failed(&error, observe);
                    if !is_transient(error.code()) {
                        return Err(error);
                    }
                    false
                }
            };
            // Two empty reads are required: a claim in progress may add a duty after the first.
            if was_empty && empty {
                return Ok(true);
            }
            was_empty = empty;
            let settle = if empty { Some(SETTLE_TIME) } else { None };
            let pause = settle.or(self.progress.away.as_ref().map(|_| POLL_INTERVAL));
            tokio::select! {
                () = next_read(pause, &mut watch) => {}
                // The limit may have left too little time for the second read.
                () = &mut time_over => return Ok(self.progress.is_drained()),
            }
        }
    }

    /// Updates the progress from a read; returns whether no other member takes duties.
    fn observe(
        &mut self,
        group: &StoredGroup,
        was_alone: bool,
        observe: &mut dyn FnMut(DrainEvent<'_>),
    ) -> bool {
        if self.progress.away.take().is_some() {
            observe(DrainEvent::StoreBack);
        }
        self.progress.update(group);
        observe(DrainEvent::Progress(&self.progress));
        let alone = self.options.mode == Some(DrainMode::HandOver)
            && self.progress.left().next().is_some()
            && !group.has_successor(&group.document, &self.options.instance);
        if alone && !was_alone {
            observe(DrainEvent::NoSuccessor);
        }
        alone
    }
}

/// Whether the error may go away without intervention. A store that was reset must be reopened.
fn is_transient(code: Code) -> bool {
    matches!(code, Code::Unreachable | Code::Lost | Code::Busy | Code::Full | Code::Failed)
}

/// Reads the group. A store that accepts the call and does not answer counts as unreachable.
async fn read(store: &dyn Store, group: &GroupName) -> Result<StoredGroup, StoreError> {
    let away = |what| StoreError::refused(Code::Unreachable, what);
    match timeout(READ_TIMEOUT, StoredGroup::read(store, group)).await {
        Err(_) => Err(away(format!("no answer within {READ_TIMEOUT:?}"))),
        Ok(Err(error)) if error.code() == Code::Lost => Err(away(error.problem().detail.clone())),
        Ok(read) => read,
    }
}

/// Waits for a fixed pause, or for a hint of the store.
async fn next_read(pause: Option<Duration>, watch: &mut Option<Box<dyn Watch>>) {
    if let (None, Some(watch)) = (pause, watch)
        && !matches!(timeout(POLL_INTERVAL, watch.changed()).await, Ok(Err(_)))
    {
        return;
    }
    sleep(pause.unwrap_or(POLL_INTERVAL)).await;
}

/// Progress of a drain: the duties that the instance had since it began, and their current holders.
#[derive(Debug)]
pub struct DrainProgress {
    instance: InstanceId,
    holders: BTreeMap<DutyId, Option<InstanceId>>,
    /// The instance has ended.
    pub ended: bool,
    /// Error of the last read; all other fields are from before it.
    pub away: Option<Problem>,
}

impl DrainProgress {
    fn new(instance: InstanceId) -> Self {
        Self { instance, holders: BTreeMap::new(), ended: false, away: None }
    }

    fn update(&mut self, group: &StoredGroup) {
        for (duty, _) in group.held_by(&self.instance) {
            self.holders.entry(duty.id.clone()).or_default();
        }
        let mut held = group.held();
        for (duty, holder) in &mut self.holders {
            *holder = held.remove(duty);
        }
        self.ended = group.member(&self.instance).is_none();
    }

    fn failed(&mut self, error: &StoreError, observe: &mut dyn FnMut(DrainEvent<'_>)) {
        let problem = error.problem();
        if self.away.replace(problem.clone()).is_none() && is_transient(problem.code) {
            observe(DrainEvent::StoreAway(problem));
        }
    }

    /// Duties that the instance still holds.
    pub fn left(&self) -> impl Iterator<Item = &DutyId> {
        let left = self.holders.iter().filter(|(_, one)| one.as_ref() == Some(&self.instance));
        left.map(|(duty, _)| duty)
    }

    /// Whether the instance holds nothing, by a read that succeeded.
    pub fn is_drained(&self) -> bool {
        self.left().next().is_none() && self.away.is_none()
    }
}

/// Formats as `2 of 3 duties handed over: 1 to host-2, 1 free`.
impl std::fmt::Display for DrainProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut counts: BTreeMap<Option<&InstanceId>, usize> = BTreeMap::new();
        for holder in self.holders.values().filter(|one| one.as_ref() != Some(&self.instance)) {
            *counts.entry(holder.as_ref()).or_default() += 1;
        }
        let handed: usize = counts.values().sum();
        let free = counts.remove(&None).map(|count| format!("{count} free"));
        let to = counts.iter().filter_map(|(who, count)| Some(format!("{count} to {}", (*who)?)));
        let parts: Vec<String> = to.chain(free).collect();
        let colon = if parts.is_empty() { "" } else { ": " };
        let all = duties(self.holders.len());
        write!(f, "{handed} of {all} handed over{colon}{}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_without_duties_is_drained_unless_the_store_is_away() {
        let mut progress = DrainProgress::new(InstanceId::new("a").unwrap());
        assert!(progress.is_drained());
        assert_eq!(progress.to_string(), "0 of 0 duties handed over");
        let mut away = 0;
        let mut observe = |event: DrainEvent<'_>| {
            away += u32::from(matches!(event, DrainEvent::StoreAway(_)));
        };
        for _ in 0..2 {
            progress.failed(&StoreError::refused(Code::Unreachable, "no route"), &mut observe);
        }
        assert_eq!(away, 1);
        assert!(!progress.is_drained());
    }
}
