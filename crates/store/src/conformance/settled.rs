//! A caller that follows the contract: it repeats refused calls, and reads again after an unknown
//! outcome. With it, a flaky store must look like a sound one.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tenure_core::guarantee::Survey;
use tenure_core::store::{
    Abilities, Adopt, Adopted, AuditEntry, AuditKind, AuditRange, Checkpoint, ClaimRequest,
    Claimed, Closed, Commit, Committed, DutyReport, Evict, Evicted, Forgotten, GroupDocument,
    Holder, KeptAlive, Member, OpenSession, Opened, Released, Replaced, Report, Reported,
    Retention, Watch,
};
use tenure_core::{
    Code, Document, DutyKey, Epoch, GroupName, Hold, InstanceId, Nonce, Note, Reason, Session,
    Store, StoreError, StoreResult, Version,
};

/// Resolves unknown outcomes of the inner store.
#[derive(Debug)]
pub struct SettledStore {
    inner: Arc<dyn Store>,
    known: Mutex<LastAnswer>,
}

/// Earlier answers to this caller, to tell an old answer from a lost one.
#[derive(Debug, Default)]
struct LastAnswer {
    granted: BTreeSet<(DutyKey, Epoch)>,
    released: BTreeSet<(DutyKey, Epoch)>,
    closed: BTreeSet<Nonce>,
}

/// The answer of an attempt, and whether an earlier attempt may have happened.
struct Tried<T> {
    answer: T,
    unsure: bool,
}

/// Whether an error was injected. Injected errors are retried; all others are passed on.
fn injected(error: &StoreError) -> bool {
    matches!(error.code(), Code::Lost | Code::Unreachable)
}

/// Repeats a call that is safe to repeat.
async fn repeat<T, F: Future<Output = StoreResult<T>>>(
    mut call: impl FnMut() -> F,
) -> StoreResult<Tried<T>> {
    let mut unsure = false;
    for _ in 0..64 {
        match call().await {
            Ok(answer) => return Ok(Tried { answer, unsure }),
            Err(error) if injected(&error) => unsure |= error.is_unknown(),
            Err(error) => return Err(error),
        }
    }
    panic!("64 faults in a row");
}

impl SettledStore {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, known: Mutex::default() }
    }

    async fn entries(&self, group: &GroupName) -> StoreResult<Vec<AuditEntry>> {
        let range = AuditRange::first(usize::MAX >> 1);
        Ok(repeat(|| self.inner.audit(group, range)).await?.answer)
    }
}

fn entry_of(entry: &AuditEntry, kind: AuditKind, hold: &Hold) -> bool {
    entry.kind == kind && entry.duty.as_ref() == Some(&hold.duty) && entry.epoch == Some(hold.epoch)
}

#[async_trait]
impl Store for SettledStore {
    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    /// Repeating with the same nonce is the same opening.
    async fn open_session(&self, open: &OpenSession) -> StoreResult<Opened> {
        Ok(repeat(|| self.inner.open_session(open)).await?.answer)
    }

    /// The audit trail shows whether a lost close took effect.
    async fn close_session(&self, session: &Session, reason: &Reason) -> StoreResult<Closed> {
        let tried = repeat(|| self.inner.close_session(session, reason)).await?;
        let left = |entry: &AuditEntry| {
            entry.instance == session.instance && entry.kind == AuditKind::Left
        };
        let ours = tried.unsure
            && self.entries(&session.group).await?.iter().any(left)
            && !self.known.lock().unwrap().closed.contains(&session.nonce);
        if tried.answer == Closed::Closed || ours {
            self.known.lock().unwrap().closed.insert(session.nonce);
            return Ok(Closed::Closed);
        }
        Ok(tried.answer)
    }

    /// Extending twice does no harm.
    async fn keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> StoreResult<KeptAlive> {
        Ok(repeat(|| self.inner.keep_alive(session, note, holds)).await?.answer)
    }

    /// A grant whose reply was lost shows as `Already` under an epoch unknown to this caller.
    async fn claim(
        &self,
        session: &Session,
        wants: &[ClaimRequest],
        reason: &Reason,
    ) -> StoreResult<Vec<Claimed>> {
        let tried = repeat(|| self.inner.claim(session, wants, reason)).await?;
        let mut known = self.known.lock().unwrap();
        let settle = |claimed: Claimed| match claimed {
            Claimed::Granted(hold) => {
                known.granted.insert((hold.duty.clone(), hold.epoch));
                Claimed::Granted(hold)
            }
            Claimed::Already(hold)
                if tried.unsure && known.granted.insert((hold.duty.clone(), hold.epoch)) =>
            {
                Claimed::Granted(hold)
            }
            other => other,
        };
        Ok(tried.answer.into_iter().map(settle).collect())
    }

    /// A release whose reply was lost is in the audit trail after the last earlier entry, even if
    /// the duty was granted again or forgotten before the repeat.
    async fn release(
        &self,
        session: &Session,
        holds: &[Hold],
        reason: &Reason,
    ) -> StoreResult<Vec<Released>> {
        let before = self.entries(&session.group).await?.last().map_or(0, |entry| entry.seq);
        let tried = repeat(|| self.inner.release(session, holds, reason)).await?;
        let (mut entries, mut holders) = (Vec::new(), Vec::new());
        if tried.unsure {
            entries = self.entries(&session.group).await?;
            entries.retain(|entry| entry.seq > before && entry.instance == session.instance);
            holders = self.holders(&session.group).await?;
        }
        let moved_on = |hold: &Hold| {
            let now = holders.iter().find(|now| now.duty == hold.duty);
            now.is_none_or(|now| now.epoch.is_none_or(|epoch| epoch > hold.epoch))
        };
        let mut known = self.known.lock().unwrap();
        let settle = |(hold, released): (&Hold, Released)| {
            let stands = entries.iter().any(|entry| entry_of(entry, AuditKind::Released, hold))
                && (released != Released::NotYours || moved_on(hold));
            match (released == Released::Freed || stands)
                && known.released.insert((hold.duty.clone(), hold.epoch))
            {
                true => Released::Freed,
                false => released,
            }
        };
        Ok(holds.iter().zip(tried.answer).map(settle).collect())
    }

    /// The audit trail shows how many holds a lost eviction ended.
    async fn evict(
        &self,
        group: &GroupName,
        instance: &InstanceId,
        when: Evict,
        reason: &Reason,
    ) -> StoreResult<Evicted> {
        let tried = repeat(|| self.inner.evict(group, instance, when, reason)).await?;
        if !tried.unsure || when == Evict::AtTtl {
            return Ok(tried.answer);
        }
        let entries = self.entries(group).await?;
        let ended = entries.iter().filter(|entry| {
            entry.kind == AuditKind::Evicted && &entry.instance == instance && entry.duty.is_some()
        });
        match ended.count() as u64 {
            0 => Ok(tried.answer),
            ended => Ok(Evicted::Evicted { ended }),
        }
    }

    async fn groups(&self) -> StoreResult<Vec<GroupName>> {
        Ok(repeat(|| self.inner.groups()).await?.answer)
    }

    async fn members(&self, group: &GroupName) -> StoreResult<Vec<Member>> {
        Ok(repeat(|| self.inner.members(group)).await?.answer)
    }

    async fn holders(&self, group: &GroupName) -> StoreResult<Vec<Holder>> {
        Ok(repeat(|| self.inner.holders(group)).await?.answer)
    }

    async fn load(&self, duties: &[DutyKey]) -> StoreResult<Vec<Option<Checkpoint>>> {
        Ok(repeat(|| self.inner.load(duties)).await?.answer)
    }

    /// Reads back after each unknown outcome and commits again only what is missing (R17).
    async fn commit(&self, session: &Session, commits: &[Commit]) -> StoreResult<Vec<Committed>> {
        let tried = repeat(|| self.inner.commit(session, commits)).await?;
        if !tried.unsure {
            return Ok(tried.answer);
        }
        let duties: Vec<_> = commits.iter().map(|commit| commit.hold.duty.clone()).collect();
        let stored = self.load(&duties).await?;
        let settle = |((commit, answer), stored): ((&Commit, Committed), Option<Checkpoint>)| {
            let gone = stored.as_ref().is_none_or(|stored| stored.epoch > commit.hold.epoch);
            let ours = stored.filter(|stored| {
                Ok(stored.version) == commit.expected.next()
                    && stored.epoch == commit.hold.epoch
                    && stored.instance == commit.hold.instance
                    && stored.document == commit.document
            });
            match (ours, answer) {
                (Some(stored), _) => Committed::Saved(stored.version),
                // Forgotten since, or overwritten by the next holder. The repeat was not fenced, so
                // the stored version was committed under this hold.
                (None, Committed::Conflict { stored })
                    if gone && Ok(stored) == commit.expected.next() =>
                {
                    Committed::Saved(stored)
                }
                (None, answer) => answer,
            }
        };
        Ok(commits.iter().zip(tried.answer).zip(stored).map(settle).collect())
    }

    /// Storing the same report twice is storing it once.
    async fn report(&self, session: &Session, reports: &[Report]) -> StoreResult<Vec<Reported>> {
        Ok(repeat(|| self.inner.report(session, reports)).await?.answer)
    }

    async fn reports(&self, duties: &[DutyKey]) -> StoreResult<Vec<Option<DutyReport>>> {
        Ok(repeat(|| self.inner.reports(duties)).await?.answer)
    }

    async fn history(&self, duty: &DutyKey) -> StoreResult<Vec<Checkpoint>> {
        Ok(repeat(|| self.inner.history(duty)).await?.answer)
    }

    async fn group_document(&self, group: &GroupName) -> StoreResult<GroupDocument> {
        Ok(repeat(|| self.inner.group_document(group)).await?.answer)
    }

    async fn replace_group_document(
        &self,
        group: &GroupName,
        expected: Version,
        document: &Document,
    ) -> StoreResult<Replaced> {
        let call = || self.inner.replace_group_document(group, expected, document);
        let tried = repeat(call).await?;
        let stored = self.group_document(group).await?;
        let ours = Ok(stored.version) == expected.next() && &stored.document == document;
        Ok(if tried.unsure && ours { Replaced::Saved(stored.version) } else { tried.answer })
    }

    async fn watch(&self, group: &GroupName) -> StoreResult<Box<dyn Watch>> {
        Ok(repeat(|| self.inner.watch(group)).await?.answer)
    }

    async fn audit(&self, group: &GroupName, range: AuditRange) -> StoreResult<Vec<AuditEntry>> {
        Ok(repeat(|| self.inner.audit(group, range)).await?.answer)
    }

    /// The audit trail shows what a lost request forgot: the entries after the last earlier one.
    async fn forget(&self, duties: &[DutyKey], reason: &Reason) -> StoreResult<Vec<Forgotten>> {
        let mut before = BTreeMap::new();
        for duty in duties {
            let last = self.entries(&duty.group).await?.last().map_or(0, |entry| entry.seq);
            before.insert(&duty.group, last);
        }
        let tried = repeat(|| self.inner.forget(duties, reason)).await?;
        if !tried.unsure {
            return Ok(tried.answer);
        }
        let mut settled = Vec::with_capacity(duties.len());
        for (duty, answer) in duties.iter().zip(tried.answer) {
            let entries = self.entries(&duty.group).await?;
            let ours = entries.iter().rev().find(|entry| {
                entry.seq > before[&duty.group]
                    && entry.kind == AuditKind::Forgotten
                    && entry.duty.as_ref() == Some(duty)
            });
            settled.push(match (answer, ours.and_then(|entry| entry.epoch)) {
                (Forgotten::Absent, Some(floor)) => Forgotten::Forgotten { floor },
                (answer, _) => answer,
            });
        }
        Ok(settled)
    }

    /// Adopting twice with the same entropy is harmless, but the second call counts no sessions.
    async fn adopt(&self, adopt: &Adopt) -> StoreResult<Adopted> {
        let mut sessions = 0;
        for group in self.groups().await? {
            sessions += self.members(&group).await?.len() as u64;
        }
        let Tried { answer, unsure } = repeat(|| self.inner.adopt(adopt)).await?;
        let sessions = if unsure { sessions } else { answer.sessions };
        Ok(Adopted { sessions, ..answer })
    }

    async fn retain(&self, retention: Retention) -> StoreResult<()> {
        repeat(|| self.inner.retain(retention)).await?;
        Ok(())
    }

    async fn retention(&self) -> StoreResult<Retention> {
        Ok(repeat(|| self.inner.retention()).await?.answer)
    }

    async fn survey(&self) -> StoreResult<Survey> {
        Ok(repeat(|| self.inner.survey()).await?.answer)
    }

    async fn wall_clock(&self) -> StoreResult<Option<u64>> {
        Ok(repeat(|| self.inner.wall_clock()).await?.answer)
    }
}
