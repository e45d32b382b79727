//! What a store inside one process remembers, and each call as one step on it.
//!
//! The memory store is this and a lock; the file store writes the durable part down after each
//! step.
//!
//! Why: docs/decisions/0028-cursor-file-shares-memory-rules.md

mod checkpoint;
#[cfg(feature = "file")]
pub(crate) mod durable;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
#[cfg(feature = "conformance")]
use std::time::Duration;

use tenure_core::store::{
    AuditEntry, AuditKind, AuditRange, Checkpoint, ClaimRequest, Claimed, Closed, CurrentHolder,
    Evict, Evicted, GroupDocument, HoldFate, Holder, KeptAlive, Member, OpenSession, Opened,
    Released, Replaced, Retention,
};
use tenure_core::{
    Document, DutyId, DutyKey, Epoch, GroupName, Hold, InstanceId, LocalInstant, Mark, Mutant,
    Nonce, Note, Reason, Session, StoreError, Version,
};

#[derive(Clone, Default)]
pub(crate) struct StoreState {
    pub(crate) groups: BTreeMap<GroupName, GroupState>,
    /// No epoch up to this one is granted in any group.
    pub(crate) floor: Epoch,
    pub(crate) retention: Retention,
    /// The wall clock of the step, for people; the clock that judges expiry where it is not given.
    pub(crate) unix_ms: Option<u64>,
}

#[derive(Clone, Default)]
pub(crate) struct GroupState {
    pub(crate) sessions: BTreeMap<InstanceId, SessionRow>,
    /// The nonce of every session that was ever opened, and when.
    spent: BTreeMap<Nonce, u64>,
    pub(crate) holds: BTreeMap<DutyId, HoldRow>,
    /// Newest first, at most [`Retention::history_slots`].
    pub(crate) checkpoints: BTreeMap<DutyId, VecDeque<Checkpoint>>,
    pub(crate) document: GroupDocument,
    pub(crate) audit: VecDeque<AuditEntry>,
    pub(crate) last_seq: u64,
    /// The newest epoch of the duties that were forgotten.
    pub(crate) floor: Epoch,
    retention: Retention,
    unix_ms: Option<u64>,
}

#[derive(Clone)]
pub(crate) struct SessionRow {
    nonce: Nonce,
    note: Note,
    pub(crate) expires: LocalInstant,
    /// How many holds have left this session.
    left: u64,
    evicted: bool,
}

/// The last grant of a duty; the row stays when the hold ends, so the epoch does (R2).
#[derive(Clone)]
pub(crate) struct HoldRow {
    pub(crate) epoch: Epoch,
    pub(crate) instance: InstanceId,
    nonce: Nonce,
    pub(crate) held: bool,
}

impl GroupState {
    fn live(&self, instance: &InstanceId, nonce: Nonce, now: LocalInstant) -> Option<&SessionRow> {
        let same = |row: &SessionRow| row.nonce == nonce || Mutant::R3Name.is_on();
        self.sessions.get(instance).filter(|row| same(row) && now < row.expires)
    }

    pub(crate) fn holder(&self, row: &HoldRow, now: LocalInstant) -> Option<CurrentHolder> {
        let session = self.live(&row.instance, row.nonce, now).filter(|_| row.held)?;
        let remaining = session.expires.since(now);
        Some(CurrentHolder { instance: row.instance.clone(), remaining })
    }

    fn is_held(&self, duty: &DutyId, now: LocalInstant) -> bool {
        self.holds.get(duty).is_some_and(|row| self.holder(row, now).is_some())
    }

    fn stands(&self, hold: &Hold, now: LocalInstant) -> bool {
        self.holds
            .get(&hold.duty.id)
            .is_some_and(|row| row.held && row.epoch == hold.epoch && row.nonce == hold.nonce)
            && self.live(&hold.instance, hold.nonce, now).is_some()
    }

    pub(crate) fn newest_epoch(&self, duty: &DutyId) -> Epoch {
        let granted = self.holds.get(duty).map_or(Epoch::ZERO, |row| row.epoch);
        let committed = self.checkpoints.get(duty).and_then(VecDeque::front);
        granted.max(committed.map_or(Epoch::ZERO, |checkpoint| checkpoint.epoch))
    }

    fn wall(&self, now: LocalInstant) -> u64 {
        self.unix_ms.unwrap_or(now.as_nanos() / 1_000_000)
    }

    pub(crate) fn record(
        &mut self,
        kind: AuditKind,
        instance: &InstanceId,
        hold: Option<(DutyKey, Epoch)>,
        reason: &str,
        now: LocalInstant,
    ) {
        if Mutant::R24Audit.is_on() {
            return;
        }
        self.last_seq += 1;
        let (duty, epoch) = hold.unzip();
        self.audit.push_back(AuditEntry {
            seq: self.last_seq,
            unix_ms: self.wall(now),
            kind,
            instance: instance.clone(),
            duty,
            epoch,
            reason: reason.to_owned(),
        });
        let surplus = self.audit.len().saturating_sub(self.retention.audit_kept);
        self.audit.drain(..surplus);
    }

    /// Frees every hold of a session and says how many there were.
    fn free_all(
        &mut self,
        group: &GroupName,
        (instance, nonce): (&InstanceId, Nonce),
        (kind, reason): (AuditKind, &Reason),
        now: LocalInstant,
    ) -> u64 {
        let mut freed = Vec::new();
        for (id, row) in &mut self.holds {
            if row.held && row.nonce == nonce && &row.instance == instance {
                row.held = false;
                freed.push((DutyKey { group: group.clone(), id: id.clone() }, row.epoch));
            }
        }
        let count = freed.len() as u64;
        for hold in freed {
            self.record(kind, instance, Some(hold), reason.as_str(), now);
        }
        count
    }
}

impl StoreState {
    pub(crate) fn group(&mut self, name: &GroupName) -> &mut GroupState {
        let group = self.groups.entry(name.clone()).or_default();
        group.floor = group.floor.max(self.floor);
        group.retention = self.retention;
        group.unix_ms = self.unix_ms;
        group
    }

    pub(crate) fn open(&mut self, open: &OpenSession, now: LocalInstant) -> Opened {
        let group = self.group(&open.group);
        let expires = now.plus(open.ttl.get());
        if let Some(row) = group.sessions.get_mut(&open.instance) {
            let live = now < row.expires;
            match (row.evicted, live, row.nonce == open.nonce) {
                (true, _, _) => return Opened::Evicted,
                (false, true, false) => return Opened::Taken,
                (false, true, true) => {
                    row.expires = expires;
                    row.note = open.note.clone();
                    return Opened::Open(open.session());
                }
                (false, false, _) => {}
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

    pub(crate) fn claim(
        &mut self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
        now: LocalInstant,
    ) -> Result<Vec<Claimed>, StoreError> {
        let group = self.group(&session.group);
        // An evicted member may keep what it has until its TTL, but gets nothing new.
        let live = group.live(&session.instance, session.nonce, now);
        let Some(mark) = live.filter(|row| !row.evicted).map(|row| Mark(row.left)) else {
            return Ok(vec![Claimed::SessionEnded; wants.len()]);
        };
        // All epochs first: an exhausted one refuses the batch before anything is written. A duty
        // that is held needs none.
        let next = |want: &ClaimRequest| match group.is_held(&want.duty.id, now) {
            true => Ok(Epoch::ZERO),
            false => {
                let newest = group.newest_epoch(&want.duty.id).max(want.floor).max(group.floor);
                match Mutant::R2Same.is_on() && newest > Epoch::ZERO {
                    true => Ok(newest),
                    false => newest.next(),
                }
            }
        };
        let epochs: Result<Vec<Epoch>, StoreError> = wants.iter().map(next).collect();
        let claims = wants.iter().zip(epochs?);
        Ok(claims
            .map(|(want, epoch)| group.grant(session, want, epoch, mark, reason, now))
            .collect())
    }

    pub(crate) fn release(
        &mut self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
        now: LocalInstant,
    ) -> Vec<Released> {
        let group = self.group(&session.group);
        holds.iter().map(|hold| group.release(session, hold, reason, now)).collect()
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

    pub(crate) fn groups(&self) -> Vec<GroupName> {
        let used = |group: &GroupState| {
            !group.sessions.is_empty()
                || !group.holds.is_empty()
                || !group.checkpoints.is_empty()
                || group.document.version > Version::ZERO
        };
        self.groups.iter().filter(|(_, group)| used(group)).map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn members(&mut self, name: &GroupName, now: LocalInstant) -> Vec<Member> {
        let group = self.group(name);
        let live = group.sessions.iter().filter(|(_, row)| now < row.expires);
        live.map(|(instance, row)| Member {
            instance: instance.clone(),
            nonce: Some(row.nonce),
            note: row.note.clone(),
            remaining: row.expires.since(now),
            evicted: row.evicted,
        })
        .collect()
    }

    pub(crate) fn holders(&mut self, name: &GroupName, now: LocalInstant) -> Vec<Holder> {
        let group = self.group(name);
        // A checkpoint whose grant is not known here came from elsewhere; it shows, too.
        let known: BTreeSet<_> = group.holds.keys().chain(group.checkpoints.keys()).collect();
        let holders = known.into_iter().map(|id| Holder {
            duty: DutyKey { group: name.clone(), id: id.clone() },
            epoch: Some(group.newest_epoch(id)),
            holder: group.holds.get(id).and_then(|row| group.holder(row, now)),
        });
        holders.collect()
    }

    pub(crate) fn document(&mut self, name: &GroupName) -> GroupDocument {
        self.group(name).document.clone()
    }

    pub(crate) fn replace_document(
        &mut self,
        name: &GroupName,
        expected: Version,
        document: &Document,
    ) -> Result<Replaced, StoreError> {
        let group = self.group(name);
        let stored = group.document.version;
        if stored != expected {
            return Ok(Replaced::Conflict { stored });
        }
        let version = expected.next()?;
        group.document = GroupDocument { version, document: document.clone() };
        Ok(Replaced::Saved(version))
    }

    pub(crate) fn audit(&mut self, name: &GroupName, range: AuditRange) -> Vec<AuditEntry> {
        let entries = self.group(name).audit.iter();
        entries.filter(|entry| entry.seq > range.after).take(range.limit).cloned().collect()
    }
}

impl GroupState {
    fn grant(
        &mut self,
        session: &Session,
        want: &ClaimRequest,
        epoch: Epoch,
        mark: Mark,
        reason: &Reason,
        now: LocalInstant,
    ) -> Claimed {
        let hold = |epoch| Hold {
            duty: want.duty.clone(),
            epoch,
            instance: session.instance.clone(),
            nonce: session.nonce,
            mark,
        };
        if let Some(row) = self.holds.get(&want.duty.id).filter(|row| row.held) {
            if let Some(holder) = self.holder(row, now) {
                return match row.nonce == session.nonce {
                    true => Claimed::Already(hold(row.epoch)),
                    false => Claimed::HeldBy(Some(holder)),
                };
            }
            let (old, before) = (row.instance.clone(), (want.duty.clone(), row.epoch));
            self.record(AuditKind::Expired, &old, Some(before), reason.as_str(), now);
        }
        let (instance, nonce) = (session.instance.clone(), session.nonce);
        let row = HoldRow { epoch, instance, nonce, held: true };
        self.holds.insert(want.duty.id.clone(), row);
        let granted = Some((want.duty.clone(), epoch));
        self.record(AuditKind::Granted, &session.instance, granted, reason.as_str(), now);
        Claimed::Granted(hold(epoch))
    }

    fn release(
        &mut self,
        session: &Session,
        hold: &Hold,
        reason: &Reason,
        now: LocalInstant,
    ) -> Released {
        if let (true, Some(row)) = (Mutant::R9Release.is_on(), self.holds.get(&hold.duty.id))
            && row.epoch != hold.epoch
        {
            let newest = Hold { epoch: row.epoch, ..hold.clone() };
            return self.release(session, &newest, reason, now);
        }
        let stands = hold.is_of(session) && self.stands(hold, now);
        let Some(row) = self.holds.get_mut(&hold.duty.id) else {
            return Released::NotYours;
        };
        let same = hold.is_of(session) && row.epoch == hold.epoch && row.nonce == hold.nonce;
        if !stands {
            return if same { Released::Already } else { Released::NotYours };
        }
        row.held = false;
        if Mutant::R2Forget.is_on() {
            self.holds.remove(&hold.duty.id);
        }
        if let Some(session) = self.sessions.get_mut(&session.instance) {
            session.left += 1;
        }
        let freed = Some((hold.duty.clone(), hold.epoch));
        self.record(AuditKind::Released, &session.instance, freed, reason.as_str(), now);
        Released::Freed
    }
}

#[cfg(feature = "conformance")]
impl StoreState {
    pub(crate) fn lapse(&mut self, session: &Session, now: LocalInstant) {
        if let Some(row) = self.group(&session.group).sessions.get_mut(&session.instance) {
            row.expires = row.expires.min(now);
        }
    }

    pub(crate) fn extend(&mut self, group: &GroupName, by: Duration, now: LocalInstant) {
        for row in self.group(group).sessions.values_mut().filter(|row| now < row.expires) {
            row.expires = row.expires.max(now.plus(by));
        }
    }

    pub(crate) fn ends_at(&mut self, hold: &Hold, now: LocalInstant) -> Option<LocalInstant> {
        let group = self.group(&hold.duty.group);
        let stands = group.stands(hold, now);
        group.sessions.get(&hold.instance).filter(|_| stands).map(|row| row.expires)
    }

    pub(crate) fn put_back(&mut self, duty: &DutyKey, version: Version) {
        let Some(ring) = self.group(&duty.group).checkpoints.get_mut(&duty.id) else { return };
        let old = ring.iter().position(|old| old.version == version);
        if let Some(old) = old.and_then(|at| ring.remove(at)) {
            ring.push_front(old);
        }
    }

    pub(crate) fn lose_epoch(&mut self, duty: &DutyKey) {
        self.group(&duty.group).holds.remove(&duty.id);
    }
}
