//! Looking at a group, and changing its document.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::engine::{GroupConfig, Layout, MemberStatus};
use tenure_core::roster::Pin;
use tenure_core::store::{AuditKind, CurrentHolder, Holder, Member, Replaced};
use tenure_core::{Code, DutyId, DutyKey, GroupName, InstanceId, Store, StoreError, Version};
use tenure_duty::process;
use tokio::sync::OnceCell;

use super::lines::{self, Line};
use super::{conflict, not_there};
use crate::failure::Failure;
use crate::group::{self, Read, Taker, only, takers};
use crate::output::{DRY_RUN, to_stderr};
use crate::why::Trail;
use crate::written::{self, Time};

/// How often a document that others change meanwhile is read again and changed.
const ATTEMPTS: u32 = 30;
/// How long to wait at most after the first of them; after each one a little longer.
const PAUSE: Duration = Duration::from_millis(10);

/// A group as it was read.
#[derive(Debug)]
pub(super) struct Sight {
    pub(super) name: GroupName,
    version: Version,
    pub(super) group: GroupConfig,
    pub(super) members: Vec<Member>,
    pub(super) holders: Vec<Holder>,
}

impl Sight {
    pub(super) async fn read(store: &dyn Store, name: &GroupName) -> Result<Self, StoreError> {
        let Read { version, group, members, holders } = group::read(store, name).await?;
        Ok(Self { name: name.clone(), version, group: group?, members, holders })
    }

    /// The same, also when the document cannot be read: then as if nothing stood in it.
    pub(super) async fn read_people(
        store: &dyn Store,
        name: &GroupName,
    ) -> Result<Self, StoreError> {
        let Read { version, group, members, holders } = group::read(store, name).await?;
        let group = group.unwrap_or_default();
        Ok(Self { name: name.clone(), version, group, members, holders })
    }

    /// A live member.
    pub(super) fn member(&self, instance: &InstanceId) -> Result<&Member, Failure> {
        let found = self.members.iter().find(|member| member.instance == *instance);
        found.ok_or_else(|| not_there(format!("no member {instance} lives in {}", self.name)))
    }

    /// A live member that does what operators write.
    pub(super) fn reader(&self, instance: &InstanceId) -> Result<&Member, Failure> {
        let member = self.member(instance)?;
        if member.nonce.is_none() || MemberStatus::read(&member.note).is_none() {
            let what = format!("{instance} does not read the document of {}", self.name);
            return Err(conflict(what));
        }
        Ok(member)
    }

    /// The same, and refuses one that is on its way out.
    pub(super) fn stayer(&self, instance: &InstanceId) -> Result<&Member, Failure> {
        let member = self.reader(instance)?;
        match member.evicted {
            true => Err(conflict(format!("{instance} is evicted"))),
            false => Ok(member),
        }
    }

    /// Refuses a duty that nobody knows.
    pub(super) fn check_duty(&self, duty: &DutyKey) -> Result<(), Failure> {
        let id = &duty.id;
        let granted = self.holders.iter().any(|holder| holder.duty.id == *id);
        let named = self.group.pins.contains_key(id) || self.group.paused.contains(id);
        let shard = match self.group.settings {
            Some((_, Layout::Shards(count))) => Layout::shard_of(id).is_some_and(|n| n < count),
            _ => false,
        };
        let standby = self.members.iter().any(|member| only(member).as_ref() == Some(id));
        if granted || named || shard || standby {
            return Ok(());
        }
        Err(not_there(format!("the duty {duty} was never granted")))
    }

    /// Who holds a duty.
    pub(super) fn holder(&self, duty: &DutyId) -> Option<&CurrentHolder> {
        let found = self.holders.iter().find(|holder| holder.duty.id == *duty);
        found.and_then(|holder| holder.holder.as_ref())
    }

    /// What an instance holds.
    pub(super) fn held_by(&self, instance: &InstanceId) -> Vec<(&DutyKey, &CurrentHolder)> {
        let held = self.holders.iter().filter_map(|it| Some((&it.duty, it.holder.as_ref()?)));
        held.filter(|(_, holder)| holder.instance == *instance).collect()
    }

    /// Who holds duties by the roster, as operators want it in this document.
    pub(super) fn takers(&self, group: &GroupConfig) -> Vec<Taker> {
        takers(&self.members, group)
    }

    /// Whether somebody else would take over from this member.
    pub(super) fn has_successor(&self, group: &GroupConfig, instance: &InstanceId) -> bool {
        let takers = self.takers(group);
        let me = takers.iter().find(|taker| taker.seat.instance == *instance);
        let only = me.and_then(|me| me.only.as_ref());
        let mut others = takers.iter().filter(|taker| taker.seat.instance != *instance);
        others.any(|other| other.only.as_ref() == only && other.takes())
    }
}

/// What became of changing a document.
pub(super) struct Edited {
    /// The group as it was before.
    pub(super) before: Sight,
    /// Its document as it is now, or would be.
    pub(super) group: GroupConfig,
    pub(super) changed: bool,
    pruned: Vec<Line>,
}

impl Edited {
    /// What was dropped because its instance has ended.
    pub(super) fn pruned(&self) -> Value {
        lines::for_programs(&self.pruned)
    }

    /// Tells people what is beside the point.
    pub(super) fn tell(&self, dry_run: bool) {
        if !self.pruned.is_empty() {
            to_stderr(&format!("of instances that have ended, dropped: {}", self.pruned.len()));
        }
        if dry_run {
            to_stderr(DRY_RUN);
        }
    }

    /// What every answer to programs has.
    pub(super) fn value(&self, dry_run: bool) -> Value {
        json!({
            "dry_run": dry_run,
            "group": self.before.name.to_string(),
            "changed": self.changed,
            "pruned": self.pruned(),
        })
    }
}

/// Changes the document of a group. `change` must come to the same when it is done twice, and may
/// refuse. Where it changes nothing, nothing is written.
pub(super) async fn edit(
    store: &dyn Store,
    name: &GroupName,
    dry_run: bool,
    change: impl Fn(&Sight, &mut GroupConfig) -> Result<(), Failure>,
) -> Result<Edited, Failure> {
    // A write whose answer was lost: what is there now says whether it happened.
    let mut lost: Option<StoreError> = None;
    let time = OnceCell::new();
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            // Others do the same at the same time: whoever waits differently gets through.
            let most = (PAUSE * attempt).as_micros();
            let micros = u64::try_from(process::entropy() % most).unwrap_or_default();
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
        let before = match (Sight::read(store, name).await, &lost) {
            (Ok(before), _) => before,
            (Err(_), Some(lost)) => return Err(lost.clone().into()),
            (Err(error), None) => return Err(error.into()),
        };
        let mut group = before.group.clone();
        if let Err(refused) = change(&before, &mut group) {
            // It refuses perhaps because the write has happened.
            return Err(lost.map_or(refused, Into::into));
        }
        if group == before.group {
            return Ok(Edited { before, group, changed: lost.is_some(), pruned: Vec::new() });
        }
        let pruned = prune(&before, &mut group, store).await?;
        let now = time.get_or_init(|| Time::ask(store)).await.as_ref().map(Time::now);
        written::record(&mut group, &before.group, now)?;
        // What is too large is refused by a dry run, too.
        let document = group.document()?;
        if !dry_run {
            match store.replace_group_document(name, before.version, &document).await {
                Ok(Replaced::Saved(_)) => {}
                Ok(Replaced::Conflict { .. }) => continue,
                Err(error) if error.is_unknown() => {
                    lost = Some(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
        }
        return Ok(Edited { before, group, changed: true, pruned });
    }
    let detail = format!("others changed the document of {name} {ATTEMPTS} times meanwhile");
    Err(lost.unwrap_or_else(|| StoreError::refused(Code::Busy, detail)).into())
}

/// Takes out what is about instances that have ended: those that left or were evicted, and those
/// that the audit trail has forgotten. Who is not there and did neither may be back in a moment,
/// under the same id.
async fn prune(
    sight: &Sight,
    group: &mut GroupConfig,
    store: &dyn Store,
) -> Result<Vec<Line>, StoreError> {
    let pinned = group.pins.values().filter_map(|pin| match pin {
        Pin::Instance(who) => Some(who),
        Pin::Name(_) | Pin::Zone(_) => None,
    });
    let named = group.drained.keys().chain(&group.cordoned).chain(group.weights.keys());
    let mut ended: BTreeSet<InstanceId> = named.chain(pinned).cloned().collect();
    for member in &sight.members {
        ended.remove(&member.instance);
    }
    if ended.is_empty() {
        return Ok(Vec::new());
    }
    let trail = Trail::read(store, &sight.name).await?;
    let last: BTreeMap<&InstanceId, AuditKind> = trail
        .0
        .iter()
        .filter(|entry| entry.duty.is_none())
        .map(|entry| (&entry.instance, entry.kind))
        .collect();
    ended.retain(|who| last.get(who) != Some(&AuditKind::Joined));
    let before = lines::of(&sight.name, group);
    let lives = |who: &InstanceId| !ended.contains(who);
    group.drained.retain(|who, _| lives(who));
    group.cordoned.retain(lives);
    group.weights.retain(|who, _| lives(who));
    group.pins.retain(|_, pin| match pin {
        Pin::Instance(who) => lives(who),
        Pin::Name(_) | Pin::Zone(_) => true,
    });
    let after = lines::of(&sight.name, group);
    Ok(before.into_iter().filter(|line| !after.contains(line)).collect())
}
