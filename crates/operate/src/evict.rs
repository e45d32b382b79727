//! Evict: removes an instance from its group and fences it.

use serde::Serialize;
use tenure_core::store::{Evict, Evicted};
use tenure_core::{DutyKey, GroupName, InstanceId, Reason, Store};

use crate::audit::AuditTrail;
use crate::error::OperateError;
use crate::group::StoredGroup;
use crate::serialize::{millis, text};

/// An instance to evict.
#[derive(Clone, Debug, Serialize)]
pub struct EvictOptions {
    /// Name of the group.
    #[serde(serialize_with = "text")]
    pub group: GroupName,
    /// Instance to evict.
    #[serde(serialize_with = "text")]
    pub instance: InstanceId,
    /// Take its duties at once instead of at the end of its lease.
    pub now: bool,
    /// Check everything and change nothing.
    pub dry_run: bool,
}

/// Outcome of an eviction.
#[derive(Clone, Debug, Serialize)]
pub struct EvictReport {
    /// Options of the eviction.
    #[serde(flatten)]
    pub options: EvictOptions,
    /// Whether it was not evicted before.
    pub changed: bool,
    /// Duties that it held.
    pub duties: Vec<FreedDuty>,
    /// Whether it was a member when it was evicted.
    #[serde(skip)]
    pub was_member: bool,
    /// Whether another member takes its duties.
    #[serde(skip)]
    pub has_successor: bool,
}

/// A duty that becomes free.
#[derive(Clone, Debug, Serialize)]
pub struct FreedDuty {
    /// Duty.
    #[serde(serialize_with = "text")]
    pub duty: DutyKey,
    /// Milliseconds until it is free.
    pub free_in_ms: u64,
}

/// Evicts an instance: it cannot renew its lease and cannot rejoin.
pub async fn evict(store: &dyn Store, options: EvictOptions) -> Result<EvictReport, OperateError> {
    let EvictOptions { group, instance, now, dry_run } = &options;
    let snapshot = StoredGroup::read_lenient(store, group).await?;
    let evicted_before = match snapshot.live_member(instance) {
        Ok(member) if member.nonce.is_none() => {
            let what =
                format!("{instance} has no session and only shares the keys: stop its process");
            return Err(OperateError::conflict(what));
        }
        Ok(member) => member.evicted && !*now,
        // An expired instance may come back and can be evicted. An unknown one is refused: the
        // store would fence any name, including a typo.
        Err(unknown) => {
            let trail = AuditTrail::read(store, group).await?;
            if !trail.0.iter().any(|entry| entry.instance == *instance) {
                return Err(unknown);
            }
            false
        }
    };
    let mut was_member = true;
    if !dry_run && !evicted_before {
        let when = if *now { Evict::Now } else { Evict::AtTtl };
        let reason = Reason::new("evict by operator")?;
        let evicted = store.evict(group, instance, when, &reason).await?;
        was_member = evicted != Evicted::NotAMember;
    }
    let duties = snapshot.held_by(instance).into_iter().map(|(duty, holder)| FreedDuty {
        duty: duty.clone(),
        free_in_ms: if *now { 0 } else { millis(holder.remaining) },
    });
    let (duties, changed) = (duties.collect(), !evicted_before);
    let has_successor = snapshot.has_successor(&snapshot.document, instance);
    Ok(EvictReport { options, changed, duties, was_member, has_successor })
}
