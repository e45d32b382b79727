//! Groups: members, holders and documents.

use rusqlite::Connection;
use tenure_core::store::{CurrentHolder, GroupDocument, Holder, Member, Replaced};
use tenure_core::{
    Document, DutyId, DutyKey, Epoch, GroupName, InstanceId, LocalInstant, Nonce, Note, StoreError,
    Version,
};

use super::session::{nanos, ns};
use super::{all, execute, first, hint, statements};

pub(super) fn groups(db: &Connection) -> Result<Vec<GroupName>, StoreError> {
    all(db, statements::GROUP_NAMES, [], |row| Ok(GroupName::new(row.get::<_, String>(0)?)))
}

pub(super) fn members(
    db: &Connection,
    group: &GroupName,
    now: LocalInstant,
) -> Result<Vec<Member>, StoreError> {
    all(db, statements::GROUP_MEMBERS, (group.as_str(), ns(now)), |row| {
        let (instance, nonce): (String, String) = (row.get(0)?, row.get(1)?);
        let (note, expires, evicted): (Vec<u8>, i64, bool) =
            (row.get(2)?, row.get(3)?, row.get(4)?);
        let member = || {
            Ok(Member {
                instance: InstanceId::new(instance)?,
                nonce: Some(Nonce::parse(&nonce)?),
                note: Note::from_bytes(note)?,
                remaining: nanos(expires - ns(now)),
                evicted,
            })
        };
        Ok(member())
    })
}

pub(super) fn holders(
    db: &Connection,
    group: &GroupName,
    now: LocalInstant,
) -> Result<Vec<Holder>, StoreError> {
    all(db, statements::GROUP_HOLDERS, (group.as_str(), ns(now)), |row| {
        let (duty, epoch): (String, i64) = (row.get(0)?, row.get(1)?);
        let (instance, expires): (Option<String>, Option<i64>) = (row.get(2)?, row.get(3)?);
        let holder = || {
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
        Ok(holder())
    })
}

pub(super) fn document(db: &Connection, group: &GroupName) -> Result<GroupDocument, StoreError> {
    let row = first(db, statements::GROUP_DOCUMENT, [group.as_str()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))
    })?;
    let Some((version, document)) = row else {
        return Ok(GroupDocument::default());
    };
    let version = Version::from_i64(version)?;
    Ok(GroupDocument { version, document: Document::new(document)? })
}

pub(super) fn replace_document(
    db: &Connection,
    group: &GroupName,
    expected: Version,
    document: &Document,
) -> Result<Replaced, StoreError> {
    let stored = self::document(db, group)?.version;
    if stored != expected {
        return Ok(Replaced::Conflict { stored });
    }
    let version = stored.next()?;
    let row = (group.as_str(), version.as_i64(), document.as_bytes());
    execute(db, statements::GROUP_SAVE_DOCUMENT, row)?;
    hint(db, group)?;
    Ok(Replaced::Saved(version))
}
