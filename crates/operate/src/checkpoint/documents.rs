//! Checkpoint documents for programs that know leases or shards.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::engine::Layout;
use tenure_core::store::{AuditEntry, AuditKind, CurrentHolder, Holder};
use tenure_core::{Code, DutyKey, GroupName, Store, StoreError};
use tenure_duty::process;
use tenure_wire::checkpoint::{
    GlobalMetadata, Lease, Shard, Shards, WithLease, last_updated_at, offset,
};

use super::no_checkpoint;
use crate::audit::AuditTrail;
use crate::group::StoredGroup;
use crate::serialize::{millis, timestamp};

/// Returns a checkpoint's payload together with the lease under which it is written.
pub async fn lease_document(
    store: &dyn Store,
    duty: &DutyKey,
    payload: &[u8],
) -> Result<WithLease, StoreError> {
    WithLease::new(payload, lease(store, duty).await?)
}

async fn lease(store: &dyn Store, duty: &DutyKey) -> Result<Option<Lease>, StoreError> {
    let holders = store.holders(&duty.group).await?;
    let Some(Holder { epoch, holder: Some(CurrentHolder { instance, remaining }), .. }) =
        holders.into_iter().find(|holder| &holder.duty == duty)
    else {
        return Ok(None);
    };
    let trail = AuditTrail::read(store, &duty.group).await?;
    let granted = |entry: &&AuditEntry| {
        entry.kind == AuditKind::Granted
            && entry.duty.as_ref() == Some(duty)
            && entry.epoch == epoch
    };
    Ok(Some(Lease {
        holder_instance_id: instance.to_string(),
        acquired_at: trail.0.iter().rev().find(granted).map(|entry| timestamp(entry.unix_ms)),
        expires_at: timestamp(process::unix_ms().saturating_add(millis(remaining))),
    }))
}

/// Returns one document for all shards of a group. Each shard has a checkpoint of its own, so that
/// two holders never overwrite each other.
pub async fn shards_document(store: &dyn Store, group: &GroupName) -> Result<Shards, StoreError> {
    let StoredGroup { document, mut holders, .. } = StoredGroup::read(store, group).await?;
    // A group may have other duties, such as the one whose document was split into shards.
    let shard_of = |holder: &Holder| Layout::shard_of(&holder.duty.id);
    let known: BTreeSet<u32> = holders.iter().filter_map(shard_of).collect();
    let count = match document.settings {
        Some((_, Layout::Shards(count))) => count,
        _ => u32::try_from(known.len()).unwrap_or(u32::MAX).max(1),
    };
    if let Some(n) = (0..count).find(|n| !known.contains(n)) {
        return Err(no_checkpoint(&DutyKey { group: group.clone(), id: Layout::shard(n)? }));
    }
    holders.retain(|holder| shard_of(holder).is_some_and(|n| n < count));
    let duties: Vec<DutyKey> = holders.iter().map(|holder| holder.duty.clone()).collect();
    let loaded = store.load(&duties).await?;
    let mut shards = BTreeMap::new();
    for (holder, checkpoint) in holders.iter().zip(loaded) {
        let checkpoint = checkpoint.ok_or_else(|| no_checkpoint(&holder.duty))?;
        let cursor = checkpoint.document.as_bytes();
        let shard = Shard {
            offset: offset(cursor).ok_or_else(|| no_offset(&holder.duty))?,
            last_updated_at: last_updated_at(cursor)
                .or_else(|| Some(timestamp(checkpoint.unix_ms))),
            holder_instance_id: holder.holder.as_ref().map(|now| now.instance.to_string()),
        };
        shards.insert(holder.duty.id.escaped().into_owned(), shard);
    }
    let trail = AuditTrail::read(store, group).await?;
    let granted = trail.0.iter().rev().find(|entry| entry.kind == AuditKind::Granted);
    let global_metadata = GlobalMetadata {
        total_shards: shards.len() as u64,
        last_rebalance_at: granted.map(|entry| timestamp(entry.unix_ms)),
    };
    Ok(Shards { global_metadata, shards })
}

fn no_offset(duty: &DutyKey) -> StoreError {
    let detail = format!("{duty} has no number under last_update_id, history_id or offset");
    StoreError::refused(Code::BadInput, detail)
}
