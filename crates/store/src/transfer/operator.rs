//! Operator access to one store: sessions, claims and sealed commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_core::store::{
    Checkpoint, ClaimRequest, Claimed, Commit, Committed, CurrentHolder, DutyReport, HoldFate,
    Holder, KeptAlive, OpenSession, Opened, Report, Reported,
};
use tenure_core::{
    Code, Document, DutyKey, Epoch, GroupName, Hold, InstanceId, Mac, Mark, Nonce, Note, Reason,
    Seal, Session, Store, StoreError, StoreResult, Ttl, Version,
};

use crate::signing::{
    Inspected, Protection, SealedPlace, SignatureVerdict, check_missing, check_ring, inspect,
};

/// Identity of an operator, and how to act.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Instance of this process.
    pub instance: InstanceId,
    /// Lease duration of its holds.
    pub ttl: Ttl,
    /// Reason for the audit trail, and for others who find the duty held.
    pub reason: Reason,
    /// Whether a live holder loses the duty.
    pub force: bool,
    /// Source of 128 random bits per call.
    pub entropy: fn() -> u128,
}

/// Access of an operator to one store.
#[derive(Debug)]
pub struct OperatorSession {
    store: Arc<dyn Store>,
    protection: Protection,
    name: String,
    operator: Operator,
    /// Session and its holds, by group.
    sessions: BTreeMap<GroupName, (Session, Vec<Hold>)>,
}

/// A checkpoint split into seal and payload.
#[derive(Clone, Debug)]
pub(super) struct StoredCheckpoint {
    pub(super) version: Version,
    pub(super) epoch: Epoch,
    pub(super) seal: Seal,
    /// The document, or why it cannot be decrypted.
    payload: StoreResult<Vec<u8>>,
}

impl StoredCheckpoint {
    /// Returns the document, unless it cannot be decrypted.
    pub(super) fn payload(&self) -> StoreResult<&Vec<u8>> {
        self.payload.as_ref().map_err(Clone::clone)
    }

    /// Returns the signature, which that of the next version covers.
    pub(super) fn mac(&self) -> Mac {
        self.seal.signed.as_ref().map_or(Mac::NONE, |(_, mac)| *mac)
    }
}

impl OperatorSession {
    /// Creates access to a bare `store`; `name` identifies it in the seals of moved checkpoints.
    pub fn new(
        store: Arc<dyn Store>,
        protection: impl Into<Protection>,
        name: String,
        operator: Operator,
    ) -> Self {
        let protection = protection.into();
        Self { store, protection, name, operator, sessions: BTreeMap::new() }
    }

    /// Returns the largest seal that this process writes.
    pub(super) fn largest_seal(&self) -> Seal {
        self.protection.largest_seal()
    }

    /// Name of the store.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a mark with this text names this store: its name, and a duty after `#`.
    pub(super) fn is_named_by(&self, mark: &str) -> bool {
        let rest = mark.strip_prefix(self.name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(super) fn force(&self) -> bool {
        self.operator.force
    }

    /// Returns a live session in the group, with a full TTL left.
    async fn session(&mut self, group: &GroupName) -> StoreResult<Session> {
        if let Some((session, holds)) = self.sessions.get(group) {
            match self.store.keep_alive(session, None, holds).await? {
                KeptAlive::Kept { .. } => return Ok(session.clone()),
                KeptAlive::Ended => self.sessions.remove(group),
            };
        }
        let nonce = Nonce::from_entropy((self.operator.entropy)());
        let instance = self.operator.instance.clone();
        let note = Note::new(self.operator.reason.as_str())?;
        let (group, ttl) = (group.clone(), self.operator.ttl);
        let mut open = OpenSession { group, instance, nonce, ttl, note };
        open.note = self.protection.session_note(&open.session(), &open.note)?;
        match self.store.open_session(&open).await? {
            Opened::Open(session) => {
                self.sessions.insert(session.group.clone(), (session.clone(), Vec::new()));
                Ok(session)
            }
            other => {
                let detail = format!("cannot open a session in group {}: {other:?}", open.group);
                Err(StoreError::refused(Code::Failed, detail))
            }
        }
    }

    /// Renews every hold for a full TTL.
    pub(super) async fn keep(&mut self) -> StoreResult<()> {
        for (session, holds) in self.sessions.values() {
            let kept = self.store.keep_alive(session, None, holds).await?;
            let stands = match kept {
                KeptAlive::Kept { holds, .. } => !holds.contains(&HoldFate::Lost),
                KeptAlive::Ended => false,
            };
            if !stands {
                let detail = format!("a hold in {} was lost", self.name);
                return Err(StoreError::refused(Code::Fenced, detail));
            }
        }
        Ok(())
    }

    /// Claims a duty above `floor`; with `force`, takes it from its holder.
    pub(super) async fn claim(&mut self, duty: &DutyKey, floor: Epoch) -> StoreResult<Hold> {
        let want = ClaimRequest { duty: duty.clone(), floor };
        // The holder may claim the duty again after it was taken.
        let mut takes_left = if self.operator.force { 2 } else { 0 };
        for _ in 0..5 {
            let session = self.session(&duty.group).await?;
            let wants = std::slice::from_ref(&want);
            let claimed = self.store.claim(&session, wants, &self.operator.reason).await?;
            match claimed.into_iter().next() {
                Some(Claimed::Granted(hold) | Claimed::Already(hold)) => {
                    if let Some((_, holds)) = self.sessions.get_mut(&duty.group) {
                        holds.push(hold.clone());
                    }
                    return Ok(hold);
                }
                Some(Claimed::HeldBy(holder)) if takes_left == 0 => {
                    return Err(held(duty, holder.as_ref()));
                }
                Some(Claimed::HeldBy(_)) => {
                    takes_left -= 1;
                    self.take(duty).await?;
                }
                Some(Claimed::SessionEnded) | None => {}
            }
        }
        Err(held(duty, None))
    }

    /// Releases a hold for its holder: the next keep-alive reports it, and commits are fenced.
    async fn take(&self, duty: &DutyKey) -> StoreResult<()> {
        let holders = self.store.holders(&duty.group).await?;
        let Some(Holder { epoch: Some(epoch), holder: Some(holder), .. }) =
            holders.into_iter().find(|holder| &holder.duty == duty)
        else {
            return Ok(());
        };
        let members = self.store.members(&duty.group).await?;
        let nonce = members.into_iter().find(|member| member.instance == holder.instance);
        let Some(nonce) = nonce.and_then(|member| member.nonce) else {
            // A foreign member has no nonce; only its TTL ends its hold.
            return Err(held(duty, Some(&holder)));
        };
        let session = Session {
            group: duty.group.clone(),
            instance: holder.instance.clone(),
            nonce,
            ttl: self.operator.ttl,
        };
        let hold = Hold {
            duty: duty.clone(),
            epoch,
            instance: holder.instance,
            nonce,
            mark: Mark::first(nonce),
        };
        self.store.release(&session, &[hold], &self.operator.reason).await?;
        Ok(())
    }

    /// Loads the newest checkpoint; refuses one that must not be trusted or cannot be decrypted.
    pub(super) async fn load(&self, duty: &DutyKey) -> StoreResult<Option<StoredCheckpoint>> {
        let found = self.found(duty).await?;
        found.iter().try_for_each(|found| found.payload().map(drop))?;
        Ok(found)
    }

    async fn found(&self, duty: &DutyKey) -> StoreResult<Option<StoredCheckpoint>> {
        if !self.protection.is_signature_required() {
            let stored = self.stored(duty).await?;
            return stored.map(|stored| self.trusted(duty, &stored)).transpose();
        }
        // The ring is read first, so that a commit between the two reads makes nothing look old.
        let ring = self.store.history(duty).await?;
        let stored = self.stored(duty).await?;
        let trusted = stored.as_ref().map(|stored| self.trusted(duty, stored)).transpose()?;
        match &stored {
            Some(stored) => check_ring(self.protection.signing.keys(), duty, stored, &ring)?,
            None => check_missing(duty, &ring)?,
        }
        Ok(trusted)
    }

    async fn stored(&self, duty: &DutyKey) -> StoreResult<Option<Checkpoint>> {
        let stored = self.store.load(std::slice::from_ref(duty)).await?;
        Ok(stored.into_iter().next().flatten())
    }

    /// Returns the trusted checkpoints of the ring, newest first.
    pub(super) async fn ring(&self, duty: &DutyKey) -> StoreResult<Vec<StoredCheckpoint>> {
        let ring = self.store.history(duty).await?;
        Ok(ring.iter().filter_map(|stored| self.trusted(duty, stored).ok()).collect())
    }

    /// Returns the newest checkpoint, even with an invalid signature, in order to replace it.
    pub(super) async fn newest(&self, duty: &DutyKey) -> StoreResult<Option<StoredCheckpoint>> {
        let stored = self.stored(duty).await?;
        Ok(stored.map(|stored| self.take_apart(duty, &stored, self.inspected(duty, &stored))))
    }

    fn inspected(&self, duty: &DutyKey, stored: &Checkpoint) -> Inspected {
        inspect(self.protection.signing.keys(), duty, stored)
    }

    fn trusted(&self, duty: &DutyKey, stored: &Checkpoint) -> StoreResult<StoredCheckpoint> {
        let inspected = self.inspected(duty, stored);
        let required = self.protection.is_signature_required();
        let bad = inspected.verdict == SignatureVerdict::Damaged
            || (required && inspected.verdict != SignatureVerdict::Good);
        if bad {
            let what = inspected.verdict.as_str();
            let detail = format!("version {} of {duty} in {}: {what}", stored.version, self.name);
            return Err(StoreError::refused(Code::BadSignature, detail));
        }
        self.protection.check_writer(duty, stored, &inspected)?;
        Ok(self.take_apart(duty, stored, inspected))
    }

    fn take_apart(
        &self,
        duty: &DutyKey,
        stored: &Checkpoint,
        inspected: Inspected,
    ) -> StoredCheckpoint {
        let payload = self.protection.payload(duty, stored, &inspected);
        let Checkpoint { version, epoch, .. } = *stored;
        StoredCheckpoint { version, epoch, seal: inspected.seal, payload }
    }

    /// Commits a payload under a hold, over version `expected`. An unknown outcome is settled by
    /// reading back (R17).
    pub(super) async fn commit(
        &mut self,
        hold: &Hold,
        expected: Version,
        (prev, seal): (Mac, Seal),
        payload: &[u8],
    ) -> StoreResult<StoredCheckpoint> {
        let version = expected.next()?;
        let at = (hold.epoch, version);
        let place = SealedPlace { duty: &hold.duty, at, instance: &hold.instance };
        let (document, seal) = self.protection.seal(&place, prev, seal, payload)?;
        let session = self.session(&hold.duty.group).await?;
        let commit = Commit { hold: hold.clone(), expected, document };
        let answer = self.store.commit(&session, std::slice::from_ref(&commit)).await;
        let payload = Ok(payload.to_vec());
        let saved = StoredCheckpoint { version, epoch: hold.epoch, seal, payload };
        let duty = &hold.duty;
        match answer.map(|answers| answers.into_iter().next()) {
            Ok(Some(Committed::Saved(_))) => Ok(saved),
            Ok(Some(Committed::Fenced { newest })) => Err(self.fenced(duty, newest)),
            Ok(Some(Committed::Conflict { stored })) => Err(StoreError::refused(
                Code::Fenced,
                format!("{duty} in {} is at version {stored}, not {expected}", self.name),
            )),
            Ok(None) => {
                Err(StoreError::unknown(Code::Failed, "the store returned no result for a commit"))
            }
            Err(error) if error.is_unknown() => {
                let stored = self.store.load(std::slice::from_ref(duty)).await?;
                let ours = stored.into_iter().flatten().any(|stored| {
                    stored.version == version
                        && stored.epoch == hold.epoch
                        && stored.document == commit.document
                });
                if ours { Ok(saved) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// Loads the report on a duty.
    pub(super) async fn report(&self, duty: &DutyKey) -> StoreResult<Option<DutyReport>> {
        Ok(self.store.reports(std::slice::from_ref(duty)).await?.pop().flatten())
    }

    /// Stores the report on a duty, which is the first one under this hold.
    pub(super) async fn store_report(
        &mut self,
        hold: &Hold,
        document: Document,
    ) -> StoreResult<()> {
        let session = self.session(&hold.duty.group).await?;
        let report = Report { hold: hold.clone(), number: 1, document };
        match self.store.report(&session, std::slice::from_ref(&report)).await?.pop() {
            Some(Reported::Stored) => Ok(()),
            Some(Reported::Fenced { newest }) => Err(self.fenced(&hold.duty, newest)),
            None => {
                Err(StoreError::unknown(Code::Failed, "the store returned no result for a report"))
            }
        }
    }

    fn fenced(&self, duty: &DutyKey, newest: Epoch) -> StoreError {
        let detail =
            format!("{duty} in {} was granted to another instance under epoch {newest}", self.name);
        StoreError::refused(Code::Fenced, detail)
    }

    /// Releases a hold. If that fails, the hold ends with its TTL.
    pub(super) async fn release(&mut self, hold: &Hold) {
        if let Some((session, holds)) = self.sessions.get_mut(&hold.duty.group) {
            holds.retain(|held| held.duty != hold.duty);
            let hold = std::slice::from_ref(hold);
            let _ = self.store.release(session, hold, &self.operator.reason).await;
        }
    }

    /// Closes all sessions. One that cannot be closed ends with its TTL.
    pub async fn close(mut self) {
        for (session, _) in std::mem::take(&mut self.sessions).into_values() {
            let _ = self.store.close_session(&session, &self.operator.reason).await;
        }
    }
}

fn held(duty: &DutyKey, holder: Option<&CurrentHolder>) -> StoreError {
    let who = holder.map_or_else(
        || "another instance".to_owned(),
        |now| format!("{} for another {} ms", now.instance, now.remaining.as_millis()),
    );
    StoreError::refused(Code::Held, format!("{duty} is held by {who}"))
}
