//! Monitor: groups with their members, duties and recent moves, read repeatedly.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::json;
use tenure_core::engine::Layout;
use tenure_core::store::{AuditEntry, AuditKind};
use tenure_core::{Code, DutyKey, GroupName, InstanceId, Label, Store, StoreError};
use tenure_duty::process;

use crate::audit::AuditTrail;
use crate::group::{StoredGroup, roster_member};
use crate::polls::{self, PollTotals};
use crate::serialize::{ErrorSummary, audit_json, millis, optional_text, text};

/// Age up to which audit entries are reported.
const RECENT_MS: u64 = 60_000;

/// Repeated reader of groups that remembers its position in their audit trails.
#[derive(Debug, Default)]
pub struct Monitor {
    only: Option<GroupName>,
    trails: BTreeMap<GroupName, RecentTrail>,
}

/// A group at one moment, or the error of reading it.
#[derive(Debug)]
pub struct GroupReport {
    /// Name of the group.
    pub group: GroupName,
    /// State of the group.
    pub status: Result<GroupStatus, StoreError>,
}

/// State of a group.
#[derive(Debug)]
pub struct GroupStatus {
    /// Layout.
    pub layout: Option<Layout>,
    /// Number of duties by state.
    pub duties: DutyCounts,
    /// Members.
    pub members: Vec<MonitoredMember>,
    /// Audit entries of the last minute.
    pub recent: Vec<AuditEntry>,
    /// The duties come from a list outside the store.
    pub has_targets: bool,
    /// Results of the targets that are held; `None` if there are no results.
    pub polls: Option<PollTotals>,
}

/// A report has the same keys whether or not the group could be read.
impl Serialize for GroupReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let status = self.status.as_ref().ok();
        let layout = status.and_then(|status| status.layout);
        let mut report = json!({
            "group": self.group.to_string(),
            "error": self.status.as_ref().err().map(ErrorSummary::from),
            "layout": layout.map(|layout| layout.to_string()),
            "duties": status.map(|status| status.duties),
            "members": status.map(|status| &status.members),
            "last_minute": status.map(|status| audit_json(&status.recent)),
        });
        if let Some(polls) = status.and_then(|status| status.polls.as_ref()) {
            report["polls"] = json!(polls);
        }
        report.serialize(serializer)
    }
}

/// Number of duties by state.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DutyCounts {
    /// Known duties.
    pub known: usize,
    /// Duties that are held.
    pub held: usize,
    /// Duties that are neither held nor paused.
    pub free: usize,
    /// Paused duties without a holder.
    pub paused: usize,
}

/// A member of a monitored group.
#[derive(Clone, Debug, Serialize)]
pub struct MonitoredMember {
    /// Instance.
    #[serde(serialize_with = "text")]
    pub instance: InstanceId,
    /// Weight.
    pub weight: Option<u32>,
    /// Zone.
    #[serde(serialize_with = "optional_text")]
    pub zone: Option<Label>,
    /// Most duties that it takes.
    pub room: Option<usize>,
    /// Number of duties that it holds.
    pub holds: usize,
    /// Milliseconds until its lease expires.
    pub remaining_ms: u64,
    /// Words for its state.
    pub state: Vec<&'static str>,
}

impl Monitor {
    /// Monitors one group, or all.
    pub fn new(only: Option<GroupName>) -> Self {
        Self { only, trails: BTreeMap::new() }
    }

    /// Forgets all positions: a reopened store may number its entries anew.
    pub fn reset(&mut self) {
        self.trails.clear();
    }

    /// Reads the groups. A damaged group among several is reported by itself.
    pub async fn read(&mut self, store: &dyn Store) -> Result<Vec<GroupReport>, StoreError> {
        let groups = match &self.only {
            Some(group) => vec![group.clone()],
            None => store.groups().await?,
        };
        let mut reports = Vec::with_capacity(groups.len());
        for group in groups {
            match self.read_group(store, &group).await {
                Ok(status) => reports.push(GroupReport { group, status: Ok(status) }),
                Err(error) if self.only.is_some() => return Err(error),
                Err(error) => match error.code() {
                    // Removed since it was listed.
                    Code::NotThere => {}
                    Code::Damaged | Code::BadInput => {
                        reports.push(GroupReport { group, status: Err(error) });
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(reports)
    }

    async fn read_group(
        &mut self,
        store: &dyn Store,
        name: &GroupName,
    ) -> Result<GroupStatus, StoreError> {
        let group = StoredGroup::read(store, name).await?;
        let trail = self.trails.entry(name.clone()).or_default();
        trail.read(store, name).await?;
        let entries = trail.entries.clone();
        let polls = held_polls(store, &group).await?;
        Ok(GroupStatus { polls, ..GroupStatus::new(&group, entries) })
    }
}

/// Sums up the results of the targets that are held: a free one may no longer be listed.
async fn held_polls(
    store: &dyn Store,
    group: &StoredGroup,
) -> Result<Option<PollTotals>, StoreError> {
    let held = group.holders.iter().filter(|holder| holder.holder.is_some());
    let held: Vec<DutyKey> = held.map(|holder| holder.duty.clone()).collect();
    let polls = polls::read(store, &held).await?;
    let polls = held.iter().zip(&polls).filter_map(|(duty, poll)| Some((duty, poll.as_ref()?)));
    let mut polls = polls.map(|(duty, poll)| (duty.id.as_str(), &poll.report)).peekable();
    Ok(polls.peek().is_some().then(|| PollTotals::of(polls)))
}

/// Recent part of an audit trail.
#[derive(Debug, Default)]
struct RecentTrail {
    /// Number of the last entry that is no longer recent.
    after: u64,
    entries: Vec<AuditEntry>,
}

impl RecentTrail {
    /// Reads all recent entries again, because an entry may appear after others with larger
    /// numbers. If this host's clock is behind, the time of the newest entry counts as now.
    async fn read(&mut self, store: &dyn Store, group: &GroupName) -> Result<(), StoreError> {
        let AuditTrail(mut entries) = AuditTrail::read_after(store, group, self.after).await?;
        let now = entries.iter().map(|entry| entry.unix_ms).fold(process::unix_ms(), u64::max);
        let old = |entry: &AuditEntry| entry.unix_ms + RECENT_MS < now;
        let recent = entries.iter().position(|entry| !old(entry)).unwrap_or(entries.len());
        if let Some(last) = entries[..recent].last() {
            self.after = last.seq;
        }
        self.entries = entries.split_off(recent);
        Ok(())
    }
}

impl GroupStatus {
    fn new(group: &StoredGroup, recent: Vec<AuditEntry>) -> Self {
        let (known, held) = (group.known_duties(), group.held());
        let paused = |duty: &&_| !held.contains_key(*duty) && group.document.pauses(duty);
        let paused = known.iter().filter(paused).count();
        let taken = known.iter().filter(|duty| held.contains_key(*duty)).count();
        let free = known.len() - taken - paused;
        let duties = DutyCounts { known: known.len(), held: held.len(), free, paused };
        let mut holds: BTreeMap<&InstanceId, usize> = BTreeMap::new();
        for holder in held.values() {
            *holds.entry(holder).or_default() += 1;
        }
        let members = group.members.iter().map(|member| {
            let planned = roster_member(member, &group.document);
            MonitoredMember {
                instance: member.instance.clone(),
                weight: planned.as_ref().map(|planned| planned.weight),
                room: planned.as_ref().map(|planned| planned.room),
                zone: planned.and_then(|planned| planned.zone),
                holds: holds.get(&member.instance).copied().unwrap_or(0),
                remaining_ms: millis(member.remaining),
                state: group.member_states(member),
            }
        });
        Self {
            layout: group.layout(),
            duties,
            members: members.collect(),
            recent,
            has_targets: group.has_targets(),
            polls: None,
        }
    }

    /// Counts recent entries of a kind that concern a duty.
    pub fn count(&self, kind: AuditKind) -> usize {
        let of_duty = |entry: &&AuditEntry| entry.kind == kind && entry.duty.is_some();
        self.recent.iter().filter(of_duty).count()
    }
}
