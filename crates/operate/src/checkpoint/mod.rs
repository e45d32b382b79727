//! Checkpoints: print, write, verify, rewind, and move to another store.

mod documents;
mod move_to;
mod put;
mod rewind;
mod verify;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tenure_core::store::Checkpoint;
use tenure_core::{Code, DutyKey, InstanceId, Moved, Reason, Store, StoreError, Ttl};
use tenure_duty::process;
use tenure_store::signing::{Inspected, Protection, inspect};
use tenure_store::transfer::Operator;
pub use tenure_store::transfer::Put;

use crate::pause::Scope;
use crate::serialize::timestamp;

pub use documents::{lease_document, shards_document};
pub use move_to::{
    CheckpointMove, MoveEvent, MoveFormat, MoveOptions, MoveSide, MovedBatch, first_shard,
};
pub use put::{PutOptions, put};
pub use rewind::{RewindOptions, RewindOutcome, RewindReport, rewind};
pub use verify::{UnreadableCheckpoint, VerifiedCheckpoint, VerifyReport, verify};

/// Lease of an operator: long enough for a slow store, short enough to wait for after a kill.
const OPERATOR_TTL: Duration = Duration::from_secs(15);

/// Describes a checkpoint as JSON. The document is included as base64 and, if possible, as JSON or
/// text.
pub fn checkpoint_json(duty: &DutyKey, checkpoint: &Checkpoint) -> Value {
    let mut value = metadata_json(duty, checkpoint, None);
    add_document(&mut value, checkpoint.document.as_bytes());
    value
}

fn add_document(value: &mut Value, payload: &[u8]) {
    let text = std::str::from_utf8(payload).ok();
    let document = serde_json::from_slice(payload).ok().or_else(|| text.map(Value::from));
    value["document"] = document.unwrap_or_default();
    value["document_base64"] = STANDARD.encode(payload).into();
}

/// A stored version of a checkpoint.
#[derive(Clone, Debug)]
pub struct StoredVersion {
    /// Checkpoint.
    pub checkpoint: Checkpoint,
    /// Its signature.
    pub inspected: Inspected,
    /// Its document; `None` if it cannot be decrypted.
    pub payload: Option<Vec<u8>>,
}

impl StoredVersion {
    /// Describes it as JSON, without a document that cannot be decrypted.
    pub fn json(&self, duty: &DutyKey) -> Value {
        let mut value = metadata_json(duty, &self.checkpoint, Some(&self.inspected));
        match &self.payload {
            Some(payload) => add_document(&mut value, payload),
            None => {
                value["document"] = Value::Null;
                value["document_base64"] = Value::Null;
            }
        }
        value
    }
}

/// Describes a checkpoint as JSON, without its document.
fn metadata_json(duty: &DutyKey, checkpoint: &Checkpoint, inspected: Option<&Inspected>) -> Value {
    let mut value = json!({
        "duty": duty.to_string(),
        "version": checkpoint.version.get(),
        "epoch": checkpoint.epoch.get(),
        "instance": checkpoint.instance.to_string(),
        "written_at": timestamp(checkpoint.unix_ms),
    });
    if let Some(Inspected { seal, verdict, .. }) = inspected {
        let (key, mac) = seal.signed.as_ref().map(|(key, mac)| (key, mac.to_string())).unzip();
        value["signature"] = verdict.as_str().into();
        value["key"] = json!(key);
        value["mac"] = json!(mac);
        value["prev"] = json!(seal.prev.map(|mac| mac.to_string()));
        value["moved_to"] = json!(seal.moved.as_ref().map(|moved| &moved.to));
        value["moving"] = seal.moved.as_ref().is_some_and(|moved| !moved.done).into();
        value["from"] = json!(seal.origin);
        if let Some((key, _)) = &seal.encrypted {
            value["encrypted_with"] = key.as_str().into();
        }
    }
    value
}

/// Describes the seal of a checkpoint in words.
pub fn describe_seal(inspected: &Inspected) -> String {
    let mut text = inspected.verdict.as_str().to_owned();
    if let Some((key, _)) = &inspected.seal.signed {
        text = format!("{text} ({key})");
    }
    if let Some((key, _)) = &inspected.seal.encrypted {
        text = format!("{text}, encrypted ({key})");
    }
    match &inspected.seal.moved {
        None => text,
        Some(Moved { to, done: true }) => format!("{text}, moved to {to}"),
        Some(Moved { to, done: false }) => format!("{text}, moving to {to}"),
    }
}

/// Returns the newest checkpoint of a duty.
pub async fn newest(store: &dyn Store, duty: &DutyKey) -> Result<Option<Checkpoint>, StoreError> {
    Ok(store.load(std::slice::from_ref(duty)).await?.into_iter().next().flatten())
}

/// Returns the instance that holds a duty.
pub async fn holder(store: &dyn Store, duty: &DutyKey) -> Result<Option<InstanceId>, StoreError> {
    let holders = store.holders(&duty.group).await?;
    let holder = holders.into_iter().find(|holder| holder.duty == *duty);
    Ok(holder.and_then(|holder| holder.holder).map(|now| now.instance))
}

/// Returns the stored checkpoints of a duty, newest first; without keys signatures are not
/// verified.
pub async fn history(
    store: &dyn Store,
    protection: &Protection,
    duty: &DutyKey,
) -> Result<Vec<StoredVersion>, StoreError> {
    let newest = newest(store, duty).await?;
    let kept = store.history(duty).await?;
    let all: Vec<_> = match protection.signing.keys() {
        Some(keys) => tenure_store::signing::verify(keys, duty, newest.as_ref(), &kept),
        None => kept.into_iter().map(|old| (old.clone(), inspect(None, duty, &old))).collect(),
    };
    if all.is_empty() {
        return Err(no_checkpoint(duty));
    }
    let version = |(checkpoint, inspected)| {
        let payload = protection.payload(duty, &checkpoint, &inspected).ok();
        StoredVersion { checkpoint, inspected, payload }
    };
    Ok(all.into_iter().map(version).collect())
}

/// Error for a duty without a checkpoint.
pub fn no_checkpoint(duty: &DutyKey) -> StoreError {
    StoreError::refused(Code::NoCheckpoint, duty.to_string())
}

/// Returns this process as the operator of a checkpoint operation.
fn operator(why: &str, force: bool) -> Result<Operator, StoreError> {
    Ok(Operator {
        instance: process::instance().id().clone(),
        ttl: Ttl::new(OPERATOR_TTL)?,
        reason: Reason::new(why)?,
        force,
        entropy: process::entropy,
    })
}

/// Returns the duties in these scopes, or all duties of the store; sorted, each once.
async fn duties_in(store: &dyn Store, scopes: &[Scope]) -> Result<Vec<DutyKey>, StoreError> {
    let mut groups = Vec::new();
    let mut duties = Vec::new();
    for scope in scopes {
        match scope {
            Scope::Duty(duty) => duties.push(duty.clone()),
            Scope::Group(group) => groups.push(group.clone()),
        }
    }
    if scopes.is_empty() {
        groups = store.groups().await?;
    }
    for group in groups {
        duties.extend(store.holders(&group).await?.into_iter().map(|holder| holder.duty));
    }
    duties.sort();
    duties.dedup();
    Ok(duties)
}
