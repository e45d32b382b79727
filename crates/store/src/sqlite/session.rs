//! Sessions, each call inside one transaction.

use std::time::Duration;

use rusqlite::Connection;
use tenure_core::store::{AuditKind, Closed, Evict, Evicted, OpenSession, Opened};
use tenure_core::{
    GroupName, InstanceId, LocalInstant, Mark, Nonce, Note, Reason, Session, StoreResult, Ttl,
};

use super::audit::record;
use super::{execute, first, hint, hold, sql};
use crate::state::rules::{self, OpenDecision};

const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

/// Nanoseconds since boot stay below 2^63 for 292 years.
pub(super) fn ns(instant: LocalInstant) -> i64 {
    instant.as_nanos() as i64
}

/// Converts a span of nanoseconds; zero when it is negative.
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
) -> StoreResult<Option<StoredSession>> {
    let key = (group.as_str(), instance.as_str());
    let row: Option<(String, i64, i64, bool)> = first(db, sql!("session/find"), key)?;
    Ok(row.map(|(nonce, expires, left, evicted)| StoredSession {
        nonce,
        live: expires > ns(now),
        left: left as u64,
        evicted,
    }))
}

/// Returns the mark of a session that may claim: live, with the same nonce, and not evicted.
pub(super) fn claimant(
    db: &Connection,
    session: &Session,
    now: LocalInstant,
) -> StoreResult<Option<Mark>> {
    let row = find(db, &session.group, &session.instance, now)?;
    let nonce = session.nonce.to_string();
    Ok(row.filter(|row| row.live && !row.evicted && row.nonce == nonce).map(|row| Mark(row.left)))
}

pub(super) fn open(db: &Connection, open: &OpenSession, now: LocalInstant) -> StoreResult<Opened> {
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
    if first::<(i64,)>(db, sql!("spent/find"), used)?.is_some() {
        return Ok(Opened::Spent);
    }
    let (group, instance) = (&open.group, &open.instance);
    let day_ago = ns(now) - DAY_NS;
    let going = (group.as_str(), instance.as_str(), day_ago);
    execute(db, sql!("spent/keep"), going)?;
    execute(db, sql!("session/sweep"), (group.as_str(), day_ago))?;
    execute(db, sql!("spent/sweep"), [group.as_str()])?;
    execute(db, sql!("spent/refresh"), [group.as_str()])?;
    execute(db, sql!("spent/record"), used)?;
    let (note, expires) = (open.note.as_str().as_bytes(), expiry(now, open.ttl));
    let first_mark = Mark::first(open.nonce).0 as i64;
    let row = (group.as_str(), instance.as_str(), nonce, note, expires, first_mark);
    execute(db, sql!("session/open"), row)?;
    record(db, AuditKind::Joined, (group, instance), None, "open")?;
    hint(db, group)?;
    Ok(Opened::Open(open.session()))
}

pub(super) fn close(
    db: &Connection,
    session: &Session,
    reason: &Reason,
    now: LocalInstant,
) -> StoreResult<Closed> {
    let Session { group, instance, nonce, .. } = session;
    let row = find(db, group, instance, now)?;
    if !row.is_some_and(|row| row.live && row.nonce == nonce.to_string()) {
        return Ok(Closed::AlreadyEnded);
    }
    hold::free_all(db, session, AuditKind::Released, reason)?;
    let key = (group.as_str(), instance.as_str(), ns(now));
    execute(db, sql!("session/end"), key)?;
    record(db, AuditKind::Left, (group, instance), None, reason.as_str())?;
    hint(db, group)?;
    Ok(Closed::Closed)
}

/// Extends a session. Returns the mark for its confirmed holds, or `None` when it has ended.
pub(super) fn keep_alive(
    db: &Connection,
    session: &Session,
    note: Option<&Note>,
    now: LocalInstant,
) -> StoreResult<Option<Mark>> {
    let row = (
        session.group.as_str(),
        session.instance.as_str(),
        session.nonce.to_string(),
        ns(now),
        expiry(now, session.ttl),
        note.map(|note| note.as_str().as_bytes()),
    );
    let left: Option<(i64,)> = first(db, sql!("session/keep_alive"), row)?;
    if note.is_some() && left.is_some() {
        hint(db, &session.group)?;
    }
    Ok(left.map(|(left,)| Mark(left as u64)))
}

pub(super) fn evict(
    db: &Connection,
    group: &GroupName,
    instance: &InstanceId,
    when: Evict,
    reason: &Reason,
    now: LocalInstant,
) -> StoreResult<Evicted> {
    let row = find(db, group, instance, now)?;
    let nobody = Nonce::from_entropy(0);
    let key = (group.as_str(), instance.as_str());
    let barred = (key.0, key.1, nobody.to_string(), ns(now));
    execute(db, sql!("session/evict"), barred)?;
    if row.as_ref().is_none_or(|row| !row.evicted) {
        record(db, AuditKind::Evicted, (group, instance), None, reason.as_str())?;
    }
    hint(db, group)?;
    let Some(row) = row.filter(|row| row.live) else { return Ok(Evicted::NotAMember) };
    if when == Evict::AtTtl {
        return Ok(Evicted::Evicted { ended: 0 });
    }
    execute(db, sql!("session/end"), (key.0, key.1, ns(now)))?;
    let session = Session {
        group: group.clone(),
        instance: instance.clone(),
        nonce: Nonce::parse(&row.nonce)?,
        ttl: Ttl::new(Ttl::MIN_TTL)?,
    };
    let ended = hold::free_all(db, &session, AuditKind::Evicted, reason)?;
    Ok(Evicted::Evicted { ended })
}
