//! `tenure checkpoint get`: what a holder would load, in three forms.

use anyhow::Context;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::engine::Layout;
use tenure_core::store::{AuditEntry, AuditKind, AuditRange, Checkpoint, CurrentHolder, Holder};
use tenure_core::{DutyKey, GroupName, Store, StoreError};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_wire::checkpoint::{
    GlobalMetadata, Lease, Shard, Shards, WithLease, last_updated_at, offset,
};

use super::{absent, checkpoint_value, document_value, with};
use crate::failure::Failure;
use crate::group::{self, Read};
use crate::output::{bytes_to_stdout, document, shown, to_stderr};
use crate::{signing, time};

/// More than a store keeps.
const WHOLE_AUDIT: AuditRange = AuditRange::first(usize::MAX >> 1);

pub(super) async fn one(
    url: &StoreUrl,
    signing: &signing::Settings,
    duty: &DutyKey,
    lease: bool,
    json: bool,
) -> Result<String, Failure> {
    let store = url.open_signed(IfAbsent::Refuse, process::entropy(), signing.signing()?).await?;
    let loaded = store.load(std::slice::from_ref(duty)).await?;
    let checkpoint = loaded.into_iter().next().flatten().ok_or_else(|| absent(duty))?;
    let payload = checkpoint.document.as_bytes();
    if lease {
        let lease = lease_of(&*store, duty).await?;
        let text = serde_json::to_string_pretty(&WithLease::new(payload, lease)?);
        return Ok(format!("{}\n", text.context("cannot print the document")?));
    }
    if json {
        let value = checkpoint_value(duty, &checkpoint);
        return Ok(document(&with(value, document_value(payload))));
    }
    let Checkpoint { version, epoch, instance, unix_ms, .. } = &checkpoint;
    to_stderr(&format!(
        "{duty}: version {version}, epoch {epoch}, by {} at {}",
        shown(instance.as_str()),
        time::shown(*unix_ms)
    ));
    // Byte for byte, whether or not it is text.
    bytes_to_stdout(payload).context("cannot write to standard output")?;
    Ok(String::new())
}

async fn lease_of(store: &dyn Store, duty: &DutyKey) -> Result<Option<Lease>, StoreError> {
    let holders = store.holders(&duty.group).await?;
    let Some(Holder { epoch, holder: Some(CurrentHolder { instance, remaining }), .. }) =
        holders.into_iter().find(|holder| &holder.duty == duty)
    else {
        return Ok(None);
    };
    let entries = store.audit(&duty.group, WHOLE_AUDIT).await?;
    let granted = |entry: &&AuditEntry| {
        entry.kind == AuditKind::Granted
            && entry.duty.as_ref() == Some(duty)
            && entry.epoch == epoch
    };
    Ok(Some(Lease {
        holder_instance_id: instance.to_string(),
        acquired_at: entries.iter().rev().find(granted).map(|entry| time::shown(entry.unix_ms)),
        expires_at: time::from_now(remaining),
    }))
}

/// One document out of one checkpoint per shard: each shard keeps its own, so that two holders
/// never overwrite each other.
pub(super) async fn shards(
    url: &StoreUrl,
    signing: &signing::Settings,
    group: &GroupName,
    json: bool,
) -> Result<String, Failure> {
    let store = url.open_signed(IfAbsent::Refuse, process::entropy(), signing.signing()?).await?;
    let Read { group: settings, mut holders, .. } = group::read(&*store, group).await?;
    // What else the group has, such as the document that the shards came from, is none of them.
    let shard_of = |holder: &Holder| Layout::shard_of(&holder.duty.id);
    let known: BTreeSet<u32> = holders.iter().filter_map(shard_of).collect();
    let count = match settings?.settings {
        Some((_, Layout::Shards(count))) => count,
        _ => u32::try_from(known.len()).unwrap_or(u32::MAX).max(1),
    };
    if let Some(n) = (0..count).find(|n| !known.contains(n)) {
        return Err(absent(&DutyKey { group: group.clone(), id: Layout::shard(n)? }).into());
    }
    holders.retain(|holder| shard_of(holder).is_some_and(|n| n < count));
    let duties: Vec<DutyKey> = holders.iter().map(|holder| holder.duty.clone()).collect();
    let loaded = store.load(&duties).await?;
    let mut shards = BTreeMap::new();
    for (holder, checkpoint) in holders.iter().zip(loaded) {
        let checkpoint = checkpoint.ok_or_else(|| absent(&holder.duty))?;
        let cursor = checkpoint.document.as_bytes();
        let written = Some(time::shown(checkpoint.unix_ms));
        let shard = Shard {
            offset: offset(cursor).ok_or_else(|| no_offset(&holder.duty))?,
            last_updated_at: last_updated_at(cursor).or(written),
            holder_instance_id: holder.holder.as_ref().map(|now| now.instance.to_string()),
        };
        shards.insert(holder.duty.id.escaped().into_owned(), shard);
    }
    let entries = store.audit(group, WHOLE_AUDIT).await?;
    let granted = entries.iter().rev().find(|entry| entry.kind == AuditKind::Granted);
    let global_metadata = GlobalMetadata {
        total_shards: shards.len() as u64,
        last_rebalance_at: granted.map(|entry| time::shown(entry.unix_ms)),
    };
    let text = serde_json::to_value(Shards { global_metadata, shards });
    let value: Value = text.context("cannot print the document")?;
    Ok(match json {
        true => document(&json!({ "group": group.to_string(), "document": value })),
        false => document(&value),
    })
}

fn no_offset(duty: &DutyKey) -> StoreError {
    let detail = format!("{duty} has no number under last_update_id, history_id or offset");
    StoreError::refused(tenure_core::Code::BadInput, detail)
}
