//! Checkpoints, each call inside one transaction.

use rusqlite::Connection;
use tenure_core::store::{Checkpoint, Commit, Committed};
use tenure_core::{
    Document, DutyKey, Epoch, InstanceId, LocalInstant, Session, StoreError, Version,
};

use super::{all, execute, first, hold, statements};
use crate::state::rules;

/// Version and epoch of a duty's checkpoint.
pub(super) fn find(
    db: &Connection,
    duty: &DutyKey,
) -> Result<Option<(Version, Epoch)>, StoreError> {
    let key = (duty.group.as_str(), duty.id.as_str());
    let row = first(db, statements::CHECKPOINT_FIND, key, |row| Ok((row.get(0)?, row.get(1)?)))?;
    row.map(|(version, epoch)| Ok((Version::from_i64(version)?, Epoch::from_i64(epoch)?)))
        .transpose()
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Result<Checkpoint, StoreError>> {
    let (version, epoch): (i64, i64) = (row.get(0)?, row.get(1)?);
    let (instance, document): (String, Vec<u8>) = (row.get(2)?, row.get(3)?);
    let unix_ms: i64 = row.get(4)?;
    let checkpoint = || {
        Ok(Checkpoint {
            version: Version::from_i64(version)?,
            epoch: Epoch::from_i64(epoch)?,
            instance: InstanceId::new(instance)?,
            document: Document::from_store(document)?,
            unix_ms: unix_ms.max(0) as u64,
        })
    };
    Ok(checkpoint())
}

pub(super) fn load(
    db: &Connection,
    duties: &[DutyKey],
) -> Result<Vec<Option<Checkpoint>>, StoreError> {
    let sql = statements::CHECKPOINT_LOAD;
    let load =
        |duty: &DutyKey| first(db, sql, (duty.group.as_str(), duty.id.as_str()), read)?.transpose();
    duties.iter().map(load).collect()
}

pub(super) fn history(db: &Connection, duty: &DutyKey) -> Result<Vec<Checkpoint>, StoreError> {
    let key = (duty.group.as_str(), duty.id.as_str());
    all(db, statements::HISTORY_READ, key, read)
}

pub(super) fn commit(
    db: &Connection,
    session: &Session,
    commits: &[Commit],
    now: LocalInstant,
) -> Result<Vec<Committed>, StoreError> {
    commits.iter().map(|commit| commit_one(db, session, commit, now)).collect()
}

fn commit_one(
    db: &Connection,
    session: &Session,
    commit: &Commit,
    now: LocalInstant,
) -> Result<Committed, StoreError> {
    let hold = &commit.hold;
    let last = hold::find(db, &hold.duty, now)?;
    let stored = find(db, &hold.duty)?.unwrap_or_default();
    let committed = rules::commit(last.as_ref(), stored, session, commit)?;
    let Committed::Saved(version) = committed else { return Ok(committed) };
    let (group, duty) = (hold.duty.group.as_str(), hold.duty.id.as_str());
    let (version_column, epoch) = (version.as_i64(), hold.epoch.as_i64());
    let (instance, document) = (hold.instance.as_str(), commit.document.as_bytes());
    let row = (group, duty, version_column, epoch, instance, document);
    // The ring's copy is the same to the millisecond.
    let saved = first(db, statements::CHECKPOINT_SAVE, row, |row| row.get(0))?;
    let unix_ms: i64 = saved.unwrap_or_default();
    let row = (group, duty, version_column, epoch, instance, document, unix_ms);
    execute(db, statements::HISTORY_SAVE, row)?;
    Ok(committed)
}
