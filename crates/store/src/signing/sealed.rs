//! Wrapper around a store that adds seals on write and removes them on read.
//!
//! Why: docs/decisions/0015-seals-outside-the-backends.md

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::store::{
    Adopt, Adopted, Checkpoint, Commit, Committed, KeptAlive, Member, OpenSession, Opened,
};
use tenure_core::{
    Code, Document, DutyKey, Epoch, GroupName, Hold, InstanceId, Mac, Note, Seal, Session, Store,
    StoreError, StoreResult, Version,
};

use super::{
    Inspected, Keyring, Protection, SealedPlace, SignatureVerdict, TrustedIdentities,
    check_missing, check_ring, inspect, split_note,
};
use crate::delegate::impl_store;

/// Number of untrusted members after which they are reported again.
const MAX_TOLD: usize = 10_000;

/// The newest checkpoint of a duty that this process has seen.
#[derive(Clone, Copy, Debug)]
struct NewestSeen {
    epoch: Epoch,
    version: Version,
    mac: Mac,
}

impl NewestSeen {
    /// Returns the position: later checkpoints have a larger one. The epoch comes first, because a
    /// duty that was forgotten and granted again counts its versions anew.
    fn place(&self) -> (Epoch, Version) {
        (self.epoch, self.version)
    }
}

fn mac_of(seal: &Seal) -> Mac {
    seal.signed.as_ref().map_or(Mac::NONE, |(_, mac)| *mac)
}

/// Store wrapper that signs and verifies, encrypts and decrypts checkpoints, and refuses those that
/// were moved elsewhere. It also signs sessions. Callers see payloads and their own notes only.
///
/// A batch is refused as a whole if one checkpoint in it is invalid; the error names the duty.
pub struct Sealed(SealLayer);

impl Sealed {
    /// Wraps a store with `protection`.
    pub fn new(inner: Arc<dyn Store>, protection: impl Into<Protection>) -> Self {
        let protection = protection.into();
        Self(SealLayer { inner, protection, seen: Mutex::default(), told: Mutex::default() })
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.inner.fmt(f)
    }
}

/// The calls that see checkpoints or notes; all others go directly to the inner store.
struct SealLayer {
    inner: Arc<dyn Store>,
    protection: Protection,
    seen: Mutex<BTreeMap<DutyKey, NewestSeen>>,
    /// Members that were reported as not trusted.
    told: Mutex<BTreeSet<(GroupName, InstanceId)>>,
}

impl SealLayer {
    fn seen(&self) -> MutexGuard<'_, BTreeMap<DutyKey, NewestSeen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen_of(&self, duties: &[DutyKey]) -> Vec<Option<NewestSeen>> {
        let seen = self.seen();
        duties.iter().map(|duty| seen.get(duty).copied()).collect()
    }

    fn required(&self) -> bool {
        self.protection.is_signature_required()
    }

    fn keys(&self) -> Option<&Keyring> {
        self.protection.signing.keys()
    }

    /// Removes the seal of a checkpoint, or returns why it must not be used. `before` is the newest
    /// one seen when the request was sent: a commit that overtook the response is not a replay.
    async fn open(
        &self,
        duty: &DutyKey,
        before: Option<NewestSeen>,
        stored: Option<Checkpoint>,
    ) -> StoreResult<Option<Checkpoint>> {
        match stored {
            Some(stored) => self.found(duty, before, stored).await.map(Some),
            None => self.missing(duty, before).await,
        }
    }

    async fn found(
        &self,
        duty: &DutyKey,
        before: Option<NewestSeen>,
        stored: Checkpoint,
    ) -> StoreResult<Checkpoint> {
        let mut stored = stored;
        let mut inspected = self.trusted(duty, &stored).await?;
        let known = |seen: NewestSeen| {
            seen.place() == (stored.epoch, stored.version) && seen.mac == mac_of(&inspected.seal)
        };
        // A process that takes over has seen nothing, and old checkpoints are validly signed, too.
        if self.required() && !before.is_some_and(known) {
            let ring = self.inner.history(duty).await?;
            if let Err(replayed) = check_ring(self.keys(), duty, &stored, &ring) {
                // A commit may have come between the two answers.
                let again = self.inner.load(std::slice::from_ref(duty)).await?;
                stored = again.into_iter().flatten().next().ok_or(replayed)?;
                inspected = self.trusted(duty, &stored).await?;
                check_ring(self.keys(), duty, &stored, &ring)?;
            }
        }
        let seal = &inspected.seal;
        self.compare_with_seen(duty, before, &stored, mac_of(seal))?;
        if let Some(moved) = &seal.moved {
            let state = if moved.done { "was moved" } else { "is being moved" };
            let detail = format!("{duty} {state} to {}", moved.to);
            return Err(StoreError::refused(Code::Moved, detail));
        }
        let payload = self.protection.payload(duty, &stored, &inspected)?;
        Ok(Checkpoint { document: Document::from_store(payload)?, ..stored })
    }

    /// Splits a checkpoint, unless its signature must not be trusted.
    async fn trusted(&self, duty: &DutyKey, stored: &Checkpoint) -> StoreResult<Inspected> {
        let inspected = inspect(self.keys(), duty, stored);
        let Inspected { seal, verdict, .. } = &inspected;
        if *verdict == SignatureVerdict::Damaged
            || (self.required() && *verdict != SignatureVerdict::Good)
        {
            return Err(self.refusal(duty, stored, seal, verdict).await);
        }
        self.protection.check_writer(duty, stored, &inspected)?;
        Ok(inspected)
    }

    /// Handles a missing checkpoint: it never existed or was forgotten, unless its ring still
    /// exists, which would have been removed with it. A new process must check this, too: an
    /// attacker who removes the newest one wants the work to begin from nothing.
    async fn missing(
        &self,
        duty: &DutyKey,
        before: Option<NewestSeen>,
    ) -> StoreResult<Option<Checkpoint>> {
        if self.required()
            && let Err(removed) = check_missing(duty, &self.inner.history(duty).await?)
        {
            // The first commit may have come between the two answers.
            let again = self.inner.load(std::slice::from_ref(duty)).await?;
            let stored = again.into_iter().flatten().next().ok_or(removed)?;
            return self.found(duty, before, stored).await.map(Some);
        }
        if before.is_some() {
            self.seen().remove(duty);
        }
        Ok(None)
    }

    fn compare_with_seen(
        &self,
        duty: &DutyKey,
        before: Option<NewestSeen>,
        stored: &Checkpoint,
        mac: Mac,
    ) -> StoreResult<()> {
        let now = NewestSeen { epoch: stored.epoch, version: stored.version, mac };
        if let Some(before) = before.filter(|_| self.required()) {
            let NewestSeen { epoch, version, .. } = before;
            if now.place() < before.place() {
                let detail = format!(
                    "{duty} is at version {} of epoch {}, but this process has seen version \
                     {version} of epoch {epoch}",
                    now.version, now.epoch
                );
                return Err(StoreError::refused(Code::Replayed, detail));
            }
            if now.place() == before.place() && now.mac != before.mac {
                let detail =
                    format!("version {version} of {duty} is not the one this process has seen");
                return Err(StoreError::refused(Code::BadSignature, detail));
            }
        }
        let mut seen = self.seen();
        let newest = seen.entry(duty.clone()).or_insert(now);
        if now.place() > newest.place() || !self.required() {
            *newest = now;
        }
        Ok(())
    }

    /// Returns the error, with the newest valid checkpoint, which is suggested but never used.
    async fn refusal(
        &self,
        duty: &DutyKey,
        stored: &Checkpoint,
        seal: &Seal,
        verdict: &SignatureVerdict,
    ) -> StoreError {
        let key = seal.signed.as_ref().map_or("none", |(key, _)| key);
        let what =
            format!("version {} of {duty}: {} (key {key})", stored.version, verdict.as_str());
        let good = |checkpoint: &&Checkpoint| {
            let inspected = inspect(self.keys(), duty, checkpoint);
            inspected.verdict == SignatureVerdict::Good && inspected.seal.moved.is_none()
        };
        let offer = match self.inner.history(duty).await {
            Err(_) => "its history cannot be read".to_owned(),
            Ok(ring) => ring.iter().find(good).map_or_else(
                || "its history has no valid version".to_owned(),
                |good| format!("the newest valid one is version {}", good.version),
            ),
        };
        StoreError::refused(Code::BadSignature, format!("{what}; {offer}"))
    }

    /// Returns the signatures of the versions that are about to be replaced.
    async fn predecessors(&self, commits: &[Commit]) -> StoreResult<Vec<Mac>> {
        let mut macs = vec![None; commits.len()];
        let mut unknown = Vec::new();
        {
            let seen = self.seen();
            for (n, commit) in commits.iter().enumerate() {
                let known = seen.get(&commit.hold.duty);
                macs[n] = match known.filter(|known| known.version == commit.expected) {
                    Some(known) => Some(known.mac),
                    None if commit.expected == Version::ZERO && !self.required() => Some(Mac::NONE),
                    None => None,
                };
                if macs[n].is_none() {
                    unknown.push(n);
                }
            }
        }
        if !unknown.is_empty() {
            let duties: Vec<_> = unknown.iter().map(|n| commits[*n].hold.duty.clone()).collect();
            // A predecessor must be valid itself, else a forged document would get a successor that
            // vouches for it.
            let before = self.seen_of(&duties);
            let stored = self.inner.load(&duties).await?;
            for ((n, before), stored) in unknown.into_iter().zip(before).zip(stored) {
                let Commit { hold, expected, .. } = &commits[n];
                let version = stored.as_ref().map_or(Version::ZERO, |stored| stored.version);
                // The store itself refuses a commit over any other version.
                if version == *expected {
                    let seal = stored
                        .as_ref()
                        .map(|replaced| inspect(self.keys(), &hold.duty, replaced).seal);
                    self.open(&hold.duty, before, stored).await?;
                    macs[n] = seal.map(|seal| mac_of(&seal));
                }
            }
        }
        Ok(macs.into_iter().map(|mac| mac.unwrap_or(Mac::NONE)).collect())
    }

    async fn seal(&self, commits: &[Commit]) -> StoreResult<Vec<Commit>> {
        let plain = |commit: &Commit| {
            let document = Seal::default().join(commit.document.as_bytes())?;
            Ok(Commit { document, ..commit.clone() })
        };
        let macs = match self.keys() {
            Some(_) => self.predecessors(commits).await?,
            None if self.protection.is_plain() => return commits.iter().map(plain).collect(),
            None => vec![Mac::NONE; commits.len()],
        };
        let sealed = commits.iter().zip(macs).map(|(commit, prev)| {
            let Commit { hold, expected, document } = commit;
            let at = (hold.epoch, expected.next()?);
            let place = SealedPlace { duty: &hold.duty, at, instance: &hold.instance };
            let payload = document.as_bytes();
            let (document, _) = self.protection.seal(&place, prev, Seal::default(), payload)?;
            Ok(Commit { document, ..commit.clone() })
        });
        sealed.collect()
    }

    async fn load(&self, duties: &[DutyKey]) -> StoreResult<Vec<Option<Checkpoint>>> {
        let before = self.seen_of(duties);
        let stored = self.inner.load(duties).await?;
        let mut opened = Vec::with_capacity(stored.len());
        for ((duty, before), stored) in duties.iter().zip(before).zip(stored) {
            opened.push(self.open(duty, before, stored).await?);
        }
        Ok(opened)
    }

    async fn commit(&self, session: &Session, commits: &[Commit]) -> StoreResult<Vec<Committed>> {
        let sealed = self.seal(commits).await?;
        let answers = self.inner.commit(session, &sealed).await?;
        let mut seen = self.seen();
        for (commit, answer) in sealed.iter().zip(&answers) {
            if let (Committed::Saved(version), Ok((seal, _))) =
                (answer, Seal::split(&commit.document))
            {
                let mac = mac_of(&seal);
                let now = NewestSeen { epoch: commit.hold.epoch, version: *version, mac };
                seen.insert(commit.hold.duty.clone(), now);
            }
        }
        Ok(answers)
    }

    async fn open_session(&self, open: &OpenSession) -> StoreResult<Opened> {
        let note = self.protection.session_note(&open.session(), &open.note)?;
        self.inner.open_session(&OpenSession { note, ..open.clone() }).await
    }

    async fn keep_alive(
        &self,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> StoreResult<KeptAlive> {
        let note = note.map(|note| self.protection.session_note(session, note)).transpose()?;
        self.inner.keep_alive(session, note.as_ref(), holds).await
    }

    /// Returns members with the notes that they gave, and reports those that are not trusted.
    async fn members(&self, group: &GroupName) -> StoreResult<Vec<Member>> {
        let mut members = self.inner.members(group).await?;
        if let Some(trusted) = &self.protection.trusted {
            let why = |member: &Member| trusted.member(group, member).err();
            for (member, why) in members.iter().filter_map(|member| Some((member, why(member)?))) {
                self.tell_once(trusted, group, &member.instance, why);
            }
        }
        for member in &mut members {
            member.note = Note::with_identity(split_note(&member.note).0)?;
        }
        Ok(members)
    }

    fn tell_once(
        &self,
        trusted: &TrustedIdentities,
        group: &GroupName,
        instance: &InstanceId,
        why: &str,
    ) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MAX_TOLD {
            told.clear();
        }
        if told.insert((group.clone(), instance.clone())) {
            trusted.tell(group, instance, why);
        }
    }

    /// Returns the payloads in the ring unverified; [`super::verify`] verifies them.
    async fn history(&self, duty: &DutyKey) -> StoreResult<Vec<Checkpoint>> {
        let ring = self.inner.history(duty).await?;
        ring.into_iter().map(|stored| self.protection.open(duty, stored)).collect()
    }

    /// Adopts the store and discards the newest checkpoints seen, since it may have been restored.
    async fn adopt(&self, adopt: &Adopt) -> StoreResult<Adopted> {
        let adopted = self.inner.adopt(adopt).await?;
        self.seen().clear();
        Ok(adopted)
    }
}

/// Calls the layer for the methods that see checkpoints or notes, and the inner store for others.
macro_rules! layer_method {
    ($store:ident) => {
        $store.0.inner.abilities()
    };
    (@layer $store:ident $method:ident $arguments:tt) => {
        $store.0.$method $arguments.await
    };
    ($store:ident $op:ident open_session $own:ident $arguments:tt) => {
        layer_method!(@layer $store open_session $arguments)
    };
    ($store:ident $op:ident keep_alive $own:ident $arguments:tt) => {
        layer_method!(@layer $store keep_alive $arguments)
    };
    ($store:ident $op:ident members $own:ident $arguments:tt) => {
        layer_method!(@layer $store members $arguments)
    };
    ($store:ident $op:ident load $own:ident $arguments:tt) => {
        layer_method!(@layer $store load $arguments)
    };
    ($store:ident $op:ident commit $own:ident $arguments:tt) => {
        layer_method!(@layer $store commit $arguments)
    };
    ($store:ident $op:ident history $own:ident $arguments:tt) => {
        layer_method!(@layer $store history $arguments)
    };
    ($store:ident $op:ident adopt $own:ident $arguments:tt) => {
        layer_method!(@layer $store adopt $arguments)
    };
    ($store:ident $op:ident $method:ident $own:ident $arguments:tt) => {
        $store.0.inner.$method $arguments.await
    };
}
impl_store!(Sealed by layer_method);
