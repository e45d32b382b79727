//! Groups: members, holders and documents.

use rusqlite::Connection;
use tenure_core::store::{CurrentHolder, GroupDocument, Holder, Member, Replaced};
use tenure_core::{
    Document, DutyId, DutyKey, Epoch, GroupName, InstanceId, LocalInstant, Nonce, Note,
    StoreResult, Version,
};

use super::session::{nanos, ns};
use super::{all, execute, first, hint, sql};

pub(super) fn groups(db: &Connection) -> StoreResult<Vec<GroupName>> {
    all(db, sql!("group/names"), [], |(name,): (String,)| GroupName::new(name))
}

pub(super) fn members(
    db: &Connection,
    group: &GroupName,
    now: LocalInstant,
) -> StoreResult<Vec<Member>> {
    let read = |row: (String, String, Vec<u8>, i64, bool)| {
        let (instance, nonce, note, expires, evicted) = row;
        Ok(Member {
            instance: InstanceId::new(instance)?,
            nonce: Some(Nonce::parse(&nonce)?),
            note: Note::from_bytes(note)?,
            remaining: nanos(expires - ns(now)),
            evicted,
        })
    };
    all(db, sql!("group/members"), (group.as_str(), ns(now)), read)
}

pub(super) fn holders(
    db: &Connection,
    group: &GroupName,
    now: LocalInstant,
) -> StoreResult<Vec<Holder>> {
    let read = |row: (String, i64, Option<String>, Option<i64>)| {
        let (duty, epoch, instance, expires) = row;
        let holder = instance.zip(expires).map(|(instance, expires)| {
            let instance = InstanceId::new(instance)?;
            Ok(CurrentHolder { instance, remaining: nanos(expires - ns(now)) })
        });
        Ok(Holder {
            duty: DutyKey { group: group.clone(), id: DutyId::new(duty)? },
            epoch: Some(Epoch::from_i64(epoch)?),
            holder: holder.transpose()?,
        })
    };
    all(db, sql!("group/holders"), (group.as_str(), ns(now)), read)
}

pub(super) fn document(db: &Connection, group: &GroupName) -> StoreResult<GroupDocument> {
    let row: Option<(i64, Vec<u8>)> = first(db, sql!("group/document"), [group.as_str()])?;
    let Some((version, document)) = row else { return Ok(GroupDocument::default()) };
    let version = Version::from_i64(version)?;
    Ok(GroupDocument { version, document: Document::new(document)? })
}

pub(super) fn replace_document(
    db: &Connection,
    group: &GroupName,
    expected: Version,
    document: &Document,
) -> StoreResult<Replaced> {
    let stored = self::document(db, group)?.version;
    if stored != expected {
        return Ok(Replaced::Conflict { stored });
    }
    let version = stored.next()?;
    let row = (group.as_str(), version.as_i64(), document.as_bytes());
    execute(db, sql!("group/save_document"), row)?;
    hint(db, group)?;
    Ok(Replaced::Saved(version))
}
