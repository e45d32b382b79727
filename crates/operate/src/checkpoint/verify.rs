//! Verify: checks the signatures of checkpoints and histories.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tenure_core::store::Checkpoint;
use tenure_core::{Code, DutyKey, Store, StoreError};
use tenure_store::signing::{self, Inspected, Protection, SignatureVerdict};

use super::{duties_in, metadata_json, newest};
use crate::pause::Scope;
use crate::serialize::{error, text};

/// Maximum reads of a duty while commits keep changing its newest checkpoint.
const MAX_READS: usize = 8;

/// Outcome of a verification.
#[derive(Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Checkpoints that were verified.
    pub checkpoints: Vec<VerifiedCheckpoint>,
    /// Checkpoints and histories that could not be read.
    pub unreadable: Vec<UnreadableCheckpoint>,
    /// Number of newest checkpoints by signing key: a key without any can be retired.
    pub newest_by_key: BTreeMap<String, u64>,
    /// Number of newest checkpoints by encryption key: a key without any can be removed. Empty if
    /// nothing is encrypted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub newest_by_encryption_key: BTreeMap<String, u64>,
    /// Duties with neither a checkpoint nor a history.
    pub without_checkpoint: Vec<String>,
    /// Number of checkpoints with a fault.
    pub faults: usize,
}

/// A checkpoint that was verified.
#[derive(Debug, Serialize)]
pub struct VerifiedCheckpoint {
    #[serde(flatten)]
    metadata: Value,
    /// Newest checkpoint of its duty, not only part of the history.
    pub newest: bool,
    /// Duty.
    #[serde(skip)]
    pub duty: DutyKey,
    /// Checkpoint.
    #[serde(skip)]
    pub checkpoint: Checkpoint,
    /// Signature.
    #[serde(skip)]
    pub inspected: Inspected,
    /// Whether its signature is a fault.
    #[serde(skip)]
    pub is_fault: bool,
}

/// A checkpoint or history that could not be read or decrypted.
#[derive(Debug, Serialize)]
pub struct UnreadableCheckpoint {
    /// Duty.
    #[serde(serialize_with = "text")]
    pub duty: DutyKey,
    /// Newest checkpoint (`true`) or history (`false`).
    pub newest: bool,
    /// Error.
    #[serde(flatten, serialize_with = "error")]
    pub error: StoreError,
}

/// Verifies the checkpoints in these scopes, or all of the store: their signatures, with trusted
/// identities also their writers, and with encryption keys that they can be decrypted. The store
/// must be open without checks.
pub async fn verify(
    store: &dyn Store,
    protection: &Protection,
    scopes: &[Scope],
) -> Result<VerifyReport, StoreError> {
    let mut report = VerifyReport::default();
    for duty in duties_in(store, scopes).await? {
        report.add(store, protection, duty).await?;
    }
    let bad = report.checkpoints.iter().filter(|one| one.is_fault).count();
    report.faults = bad + report.unreadable.len();
    let is_encrypted = |one: &VerifiedCheckpoint| one.inspected.seal.encrypted.is_some();
    let encrypts = protection.encryption.is_some() || report.checkpoints.iter().any(is_encrypted);
    for one in report.checkpoints.iter().filter(|one| one.newest) {
        let seal = &one.inspected.seal;
        count(&mut report.newest_by_key, seal.signed.as_ref().map(|(key, _)| key));
        if encrypts {
            let key = seal.encrypted.as_ref().map(|(key, _)| key);
            count(&mut report.newest_by_encryption_key, key);
        }
    }
    Ok(report)
}

fn count(by_key: &mut BTreeMap<String, u64>, key: Option<&String>) {
    let key = key.map_or("(none)", String::as_str);
    *by_key.entry(key.to_owned()).or_default() += 1;
}

type ReadResult<T> = Result<T, StoreError>;

/// Reads the newest checkpoint and the history as of one moment; each may be damaged. Rereads the
/// newest one after the history until both reads agree: otherwise a concurrent commit would look
/// like a changed history.
async fn read(
    store: &dyn Store,
    duty: &DutyKey,
) -> ReadResult<(ReadResult<Option<Checkpoint>>, ReadResult<Vec<Checkpoint>>)> {
    let mut first = if_damaged(newest(store, duty).await)?;
    let mut kept = Ok(Vec::new());
    for _ in 0..MAX_READS {
        kept = if_damaged(store.history(duty).await)?;
        let again = if_damaged(newest(store, duty).await)?;
        let same = matches!((&first, &again), (Ok(first), Ok(again)) if first == again);
        let damaged = first.is_err() && again.is_err();
        first = again;
        if same || damaged {
            break;
        }
    }
    Ok((first, kept))
}

/// Separates damaged data, which is reported, from errors that end the command.
fn if_damaged<T>(answer: ReadResult<T>) -> ReadResult<ReadResult<T>> {
    match answer {
        Err(error) if error.code() != Code::Damaged => Err(error),
        answer => Ok(answer),
    }
}

impl VerifyReport {
    async fn add(
        &mut self,
        store: &dyn Store,
        protection: &Protection,
        duty: DutyKey,
    ) -> Result<(), StoreError> {
        let (keys, required) = (protection.signing.keys(), protection.is_signature_required());
        let (newest, kept) = read(store, &duty).await?;
        let all = match (&newest, &kept) {
            (Ok(newest), Ok(kept)) => signing::verify(keys, &duty, newest.as_ref(), kept),
            // Verified alone; the unreadable part is reported once, below.
            (Ok(newest), Err(_)) => {
                let alone: Vec<Checkpoint> = newest.iter().cloned().collect();
                signing::verify(keys, &duty, newest.as_ref(), &alone)
            }
            (Err(_), Ok(kept)) => signing::verify(keys, &duty, kept.first(), kept),
            (Err(_), Err(_)) => Vec::new(),
        };
        if all.is_empty() && newest.is_ok() && kept.is_ok() {
            self.without_checkpoint.push(duty.to_string());
        }
        let has_newest = matches!(newest, Ok(Some(_)));
        let mut errors = vec![(true, newest.err()), (false, kept.err())];
        for (n, (checkpoint, inspected)) in all.iter().enumerate() {
            let writer = protection.check_writer(&duty, checkpoint, inspected);
            errors.push((n == 0 && has_newest, writer.err()));
            if protection.encryption.is_some() {
                let opened = protection.payload(&duty, checkpoint, inspected);
                errors.push((n == 0 && has_newest, opened.err()));
            }
        }
        let verified = all.into_iter().enumerate().map(|(n, (checkpoint, inspected))| {
            let is_fault = match inspected.verdict {
                SignatureVerdict::Good => false,
                SignatureVerdict::Unsigned => required,
                _ => true,
            };
            VerifiedCheckpoint {
                metadata: metadata_json(&duty, &checkpoint, Some(&inspected)),
                newest: n == 0 && has_newest,
                duty: duty.clone(),
                checkpoint,
                inspected,
                is_fault,
            }
        });
        self.checkpoints.extend(verified);
        self.unreadable.extend(errors.into_iter().filter_map(|(newest, error)| {
            Some(UnreadableCheckpoint { duty: duty.clone(), newest, error: error? })
        }));
        Ok(())
    }
}
