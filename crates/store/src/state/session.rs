//! Sessions.

use tenure_core::store::{
    AuditKind, Closed, Evict, Evicted, HoldFate, KeptAlive, OpenSession, Opened,
};
use tenure_core::{
    GroupName, Hold, InstanceId, LocalInstant, Mark, Mutant, Nonce, Note, Reason, Session,
};

use super::rules::{self, OpenDecision};
use super::{SessionRow, StoreState};

impl StoreState {
    pub(crate) fn open(&mut self, open: &OpenSession, now: LocalInstant) -> Opened {
        let group = self.group(&open.group);
        let expires = now.plus(open.ttl.get());
        if let Some(row) = group.sessions.get_mut(&open.instance) {
            let live = now < row.expires;
            match rules::open(row.evicted, live, row.nonce == open.nonce) {
                OpenDecision::Answer(opened) => return opened,
                OpenDecision::Extend => {
                    row.expires = expires;
                    row.note = open.note.clone();
                    return Opened::Open(open.session());
                }
                OpenDecision::Replace => {}
            }
        }
        if group.spent.contains_key(&open.nonce) {
            return Opened::Spent;
        }
        group.spent.insert(open.nonce, group.wall(now));
        let row = SessionRow {
            nonce: open.nonce,
            note: open.note.clone(),
            expires,
            left: Mark::first(open.nonce).0,
            evicted: false,
        };
        group.sessions.insert(open.instance.clone(), row);
        group.record(AuditKind::Joined, &open.instance, None, "open", now);
        Opened::Open(open.session())
    }

    pub(crate) fn close(
        &mut self,
        session: &Session,
        reason: &Reason,
        now: LocalInstant,
    ) -> Closed {
        let group = self.group(&session.group);
        if group.live(&session.instance, session.nonce, now).is_none() {
            return Closed::AlreadyEnded;
        }
        let who = (&session.instance, session.nonce);
        group.free_all(&session.group, who, (AuditKind::Released, reason), now);
        if let Some(row) = group.sessions.get_mut(&session.instance) {
            row.expires = now;
        }
        group.record(AuditKind::Left, &session.instance, None, reason.as_str(), now);
        Closed::Closed
    }

    pub(crate) fn keep_alive(
        &mut self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
        now: LocalInstant,
    ) -> KeptAlive {
        let group = self.group(&session.group);
        let live = group.live(&session.instance, session.nonce, now).is_some();
        let barred = |row: &SessionRow| row.evicted && !Mutant::R22Evict.is_on();
        let Some(row) = group.sessions.get_mut(&session.instance).filter(|row| !barred(row)) else {
            return KeptAlive::Ended;
        };
        let revived = Mutant::R9Revive.is_on() && row.nonce == session.nonce;
        if !live && !revived {
            return KeptAlive::Ended;
        }
        row.expires = now.plus(session.ttl.get());
        if let Some(note) = note {
            row.note = note.clone();
        }
        let mark = Mark(row.left);
        let fate = |hold: &Hold| match hold.is_of(session) && group.stands(hold, now) {
            true => HoldFate::Kept,
            false => HoldFate::Lost,
        };
        let mut fates: Vec<HoldFate> = holds.iter().map(fate).collect();
        if let (true, Some(first)) = (Mutant::R8Whole.is_on(), fates.first().copied()) {
            fates.fill(first);
        }
        KeptAlive::Kept { mark, holds: fates }
    }

    pub(crate) fn evict(
        &mut self,
        name: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
        now: LocalInstant,
    ) -> Evicted {
        let group = self.group(name);
        let row = group.sessions.entry(instance.clone()).or_insert_with(|| SessionRow {
            nonce: Nonce::from_entropy(0),
            note: Note::default(),
            expires: now,
            left: 0,
            evicted: false,
        });
        let (first, live, nonce) = (!row.evicted, now < row.expires, row.nonce);
        row.evicted = true;
        if when == Evict::Now {
            row.expires = row.expires.min(now);
        }
        if first {
            group.record(AuditKind::Evicted, instance, None, reason.as_str(), now);
        }
        if !live {
            return Evicted::NotAMember;
        }
        let ended = match when {
            Evict::AtTtl => 0,
            Evict::Now => {
                group.free_all(name, (instance, nonce), (AuditKind::Evicted, reason), now)
            }
        };
        Evicted::Evicted { ended }
    }
}
