//! Checkpoints, each call inside one transaction.

use rusqlite::Connection;
use tenure_core::store::{Checkpoint, Commit, Committed};
use tenure_core::{
    Document, DutyKey, Epoch, InstanceId, LocalInstant, Session, StoreResult, Version,
};

use super::{all, execute, first, hold, sql};
use crate::state::rules;

/// Version and epoch of a duty's checkpoint.
pub(super) fn find(db: &Connection, duty: &DutyKey) -> StoreResult<Option<(Version, Epoch)>> {
    let key = (duty.group.as_str(), duty.id.as_str());
    let row: Option<(i64, i64)> = first(db, sql!("checkpoint/find"), key)?;
    row.map(|(version, epoch)| Ok((Version::from_i64(version)?, Epoch::from_i64(epoch)?)))
        .transpose()
}

/// Version, epoch, instance, document and time.
type CheckpointRow = (i64, i64, String, Vec<u8>, i64);

fn read((version, epoch, instance, document, unix_ms): CheckpointRow) -> StoreResult<Checkpoint> {
    Ok(Checkpoint {
        version: Version::from_i64(version)?,
        epoch: Epoch::from_i64(epoch)?,
        instance: InstanceId::new(instance)?,
        document: Document::from_store(document)?,
        unix_ms: unix_ms.max(0) as u64,
    })
}

pub(super) fn load(db: &Connection, duties: &[DutyKey]) -> StoreResult<Vec<Option<Checkpoint>>> {
    let load = |duty: &DutyKey| {
        let key = (duty.group.as_str(), duty.id.as_str());
        first(db, sql!("checkpoint/load"), key)?.map(read).transpose()
    };
    duties.iter().map(load).collect()
}

pub(super) fn history(db: &Connection, duty: &DutyKey) -> StoreResult<Vec<Checkpoint>> {
    let key = (duty.group.as_str(), duty.id.as_str());
    all(db, sql!("history/read"), key, read)
}

pub(super) fn commit(
    db: &Connection,
    session: &Session,
    commits: &[Commit],
    now: LocalInstant,
) -> StoreResult<Vec<Committed>> {
    commits.iter().map(|commit| commit_one(db, session, commit, now)).collect()
}

fn commit_one(
    db: &Connection,
    session: &Session,
    commit: &Commit,
    now: LocalInstant,
) -> StoreResult<Committed> {
    let hold = &commit.hold;
    let last = hold::find(db, &hold.duty, now)?;
    let stored = find(db, &hold.duty)?.unwrap_or_default();
    let committed = rules::commit(last.as_ref(), stored, session, commit)?;
    let Committed::Saved(version) = committed else { return Ok(committed) };
    let (group, duty) = (hold.duty.group.as_str(), hold.duty.id.as_str());
    let (version_column, epoch) = (version.as_i64(), hold.epoch.as_i64());
    let (instance, document) = (hold.instance.as_str(), commit.document.as_bytes());
    let row = (group, duty, version_column, epoch, instance, document);
    // The copy in the ring gets the same time.
    let saved: Option<(i64,)> = first(db, sql!("checkpoint/save"), row)?;
    let (unix_ms,) = saved.unwrap_or_default();
    let row = (group, duty, version_column, epoch, instance, document, unix_ms);
    execute(db, sql!("history/save"), row)?;
    Ok(committed)
}
