//! Sessions, each call inside one transaction.

use std::time::Duration;

use rusqlite::Connection;
use tenure_core::store::{AuditKind, Closed, Evict, Evicted, OpenSession, Opened};
use tenure_core::{
    GroupName, InstanceId, LocalInstant, Mark, Nonce, Note, Reason, Session, StoreError, Ttl,
};

use super::audit::{AuditRecord, record};
use super::{execute, first, hint, hold, statements};
use crate::state::rules::{self, OpenDecision};

const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

/// Nanoseconds since boot stay below 2^63 for 292 years.
pub(super) fn ns(instant: LocalInstant) -> i64 {
    instant.as_nanos() as i64
}

/// A span of nanoseconds, none when it is negative.
pub(super) fn nanos(span: i64) -> Duration {
    Duration::from_nanos(u64::try_from(span).unwrap_or(0))
}

fn expiry(now: LocalInstant, ttl: Ttl) -> i64 {
    ns(now.plus(ttl.get()))
}

struct StoredSession {
    nonce: String,
    live: bool,
    left: u64,
    evicted: bool,
}

fn find(
    db: &Connection,
    group: &GroupName,
    instance: &InstanceId,
    now: LocalInstant,
) -> Result<Option<StoredSession>, StoreError> {
    let key = (group.as_str(), instance.as_str());
    first(db, statements::SESSION_FIND, key, |row| {
        Ok(StoredSession {
            nonce: row.get(0)?,
            live: row.get::<_, i64>(1)? > ns(now),
            left: row.get::<_, i64>(2)? as u64,
            evicted: row.get(3)?,
        })
    })
}

/// The mark of a session that may claim: live, this very one, and not evicted.
pub(super) fn claimant(
    db: &Connection,
    session: &Session,
    now: LocalInstant,
) -> Result<Option<Mark>, StoreError> {
    let row = find(db, &session.group, &session.instance, now)?;
    let nonce = session.nonce.to_string();
    Ok(row.filter(|row| row.live && !row.evicted && row.nonce == nonce).map(|row| Mark(row.left)))
}

pub(super) fn open(
    db: &Connection,
    open: &OpenSession,
    now: LocalInstant,
) -> Result<Opened, StoreError> {
    let nonce = open.nonce.to_string();
    if let Some(row) = find(db, &open.group, &open.instance, now)? {
        match rules::open(row.evicted, row.live, row.nonce == nonce) {
            OpenDecision::Answer(opened) => return Ok(opened),
            OpenDecision::Extend => {
                keep_alive(db, &open.session(), Some(&open.note), now)?;
                return Ok(Opened::Open(open.session()));
            }
            OpenDecision::Replace => {}
        }
    }
    let used = (open.group.as_str(), nonce.as_str());
    if first(db, statements::SPENT_FIND, used, |_| Ok(()))?.is_some() {
        return Ok(Opened::Spent);
    }
    let (group, instance) = (&open.group, &open.instance);
    let day_ago = ns(now) - DAY_NS;
    let going = (group.as_str(), instance.as_str(), day_ago);
    execute(db, statements::SPENT_KEEP, going)?;
    execute(db, statements::SESSION_SWEEP, (group.as_str(), day_ago))?;
    execute(db, statements::SPENT_SWEEP, [group.as_str()])?;
    execute(db, statements::SPENT_REFRESH, [group.as_str()])?;
    execute(db, statements::SPENT_RECORD, used)?;
    let (note, expires) = (open.note.as_str().as_bytes(), expiry(now, open.ttl));
    let first_mark = Mark::first(open.nonce).0 as i64;
    let row = (group.as_str(), instance.as_str(), nonce, note, expires, first_mark);
    execute(db, statements::SESSION_OPEN, row)?;
    let (kind, reason) = (AuditKind::Joined, "open");
    record(db, &AuditRecord { kind, group, instance, hold: None, reason })?;
    hint(db, group)?;
    Ok(Opened::Open(open.session()))
}

pub(super) fn close(
    db: &Connection,
    session: &Session,
    reason: &Reason,
    now: LocalInstant,
) -> Result<Closed, StoreError> {
    let Session { group, instance, nonce, .. } = session;
    let row = find(db, group, instance, now)?;
    if !row.is_some_and(|row| row.live && row.nonce == nonce.to_string()) {
        return Ok(Closed::AlreadyEnded);
    }
    hold::free_all(db, session, AuditKind::Released, reason)?;
    let key = (group.as_str(), instance.as_str(), ns(now));
    execute(db, statements::SESSION_END, key)?;
    let (kind, reason) = (AuditKind::Left, reason.as_str());
    record(db, &AuditRecord { kind, group, instance, hold: None, reason })?;
    hint(db, group)?;
    Ok(Closed::Closed)
}

/// Extends a session. Answers the mark that its confirmed holds carry, or nothing when it has
/// ended.
pub(super) fn keep_alive(
    db: &Connection,
    session: &Session,
    note: Option<&Note>,
    now: LocalInstant,
) -> Result<Option<Mark>, StoreError> {
    let row = (
        session.group.as_str(),
        session.instance.as_str(),
        session.nonce.to_string(),
        ns(now),
        expiry(now, session.ttl),
        note.map(|note| note.as_str().as_bytes()),
    );
    let sql = statements::SESSION_KEEP_ALIVE;
    let left = first(db, sql, row, |row| row.get::<_, i64>(0))?;
    if note.is_some() && left.is_some() {
        hint(db, &session.group)?;
    }
    Ok(left.map(|left| Mark(left as u64)))
}

pub(super) fn evict(
    db: &Connection,
    group: &GroupName,
    instance: &InstanceId,
    when: Evict,
    reason: &Reason,
    now: LocalInstant,
) -> Result<Evicted, StoreError> {
    let row = find(db, group, instance, now)?;
    let nobody = Nonce::from_entropy(0);
    let key = (group.as_str(), instance.as_str());
    let barred = (key.0, key.1, nobody.to_string(), ns(now));
    execute(db, statements::SESSION_EVICT, barred)?;
    if row.as_ref().is_none_or(|row| !row.evicted) {
        let (kind, reason) = (AuditKind::Evicted, reason.as_str());
        record(db, &AuditRecord { kind, group, instance, hold: None, reason })?;
    }
    hint(db, group)?;
    let Some(row) = row.filter(|row| row.live) else {
        return Ok(Evicted::NotAMember);
    };
    if when == Evict::AtTtl {
        return Ok(Evicted::Evicted { ended: 0 });
    }
    execute(db, statements::SESSION_END, (key.0, key.1, ns(now)))?;
    let session = Session {
        group: group.clone(),
        instance: instance.clone(),
        nonce: Nonce::parse(&row.nonce)?,
        ttl: Ttl::new(Ttl::MIN_TTL)?,
    };
    let ended = hold::free_all(db, &session, AuditKind::Evicted, reason)?;
    Ok(Evicted::Evicted { ended })
}
