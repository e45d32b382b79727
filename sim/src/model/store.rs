//! Store of the model: the relevant rules of the store contract, in steps instead of clock time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tenure_core::engine::{GroupView, StoreRequest, StoreResponse};
use tenure_core::store::{
    ClaimRequest, Claimed, Closed, CurrentHolder, GroupDocument, HoldFate, Holder, KeptAlive,
    Member, OpenSession, Opened, Released, Replaced,
};
use tenure_core::{Epoch, Hold, Mark, Nonce, Note, Session};

use super::shared::StatePart;
use super::{ModelBounds, ModelGrant, Setup, What, Without};

/// Sessions and duties.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelStore {
    /// The session of each instance.
    sessions: Vec<Option<Open>>,
    /// The nonce of each instance's last session; it is spent when that session has ended.
    opened: Vec<Option<Nonce>>,
    /// The row of each duty.
    pub(super) rows: Vec<DutyRow>,
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Open {
    nonce: Nonce,
    note: Note,
    /// Whether its TTL was restarted. The remaining TTL is not part of the store, because other
    /// members see only whether a session has ended.
    renewed: bool,
}

/// A duty.
#[derive(Clone, Debug, Default)]
pub(super) struct DutyRow {
    /// The newest epoch granted.
    pub(super) epoch: Epoch,
    /// The instance that holds it.
    pub(super) holder: Option<usize>,
    /// Whether the holder has not learned of its grant: the response is late or was lost.
    unheard: bool,
    /// The instance of the newest grant.
    last: usize,
    /// The end of that hold, if it has ended; no decision and no rule depends on it.
    ended: Option<What>,
}

impl DutyRow {
    fn newest(&self) -> ModelGrant {
        ModelGrant { epoch: self.epoch, to: self.last }
    }

    fn key(&self) -> (Epoch, Option<usize>, bool, usize) {
        (self.epoch, self.holder, self.unheard, self.last)
    }
}

impl PartialEq for DutyRow {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for DutyRow {}

impl Hash for DutyRow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// A commit, with the hold under which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelCommit {
    pub(super) duty: usize,
    pub(super) epoch: Epoch,
    pub(super) nonce: Nonce,
}

impl StatePart for ModelStore {
    fn hash_rest(&self, hasher: &mut DefaultHasher) {
        self.rows.iter().for_each(|row| row.ended.hash(hasher));
    }
}

impl ModelStore {
    pub(super) fn new(setup: &Setup) -> Self {
        let (instances, duties) = (setup.instances.len(), setup.duties.len());
        Self {
            sessions: vec![None; instances],
            opened: vec![None; instances],
            rows: vec![DutyRow::default(); duties],
        }
    }

    /// Whether an instance has a session.
    pub(super) fn has_session(&self, instance: usize) -> bool {
        self.sessions[instance].is_some()
    }

    /// Whether its session was opened or extended since the last call.
    pub(super) fn take_renewed(&mut self, instance: usize) -> bool {
        self.sessions[instance].as_mut().is_some_and(|open| std::mem::take(&mut open.renewed))
    }

    /// Ends a session, and all of its holds with it.
    pub(super) fn end(&mut self, instance: usize, how: What) {
        self.sessions[instance] = None;
        for row in self.rows.iter_mut().filter(|row| row.holder == Some(instance)) {
            (row.holder, row.unheard) = (None, false);
            row.ended = Some(how);
        }
    }

    /// Notes whether the holders of the grants in a response have learned of them.
    pub(super) fn mark_unheard(&mut self, setup: &Setup, answer: &StoreResponse, unheard: bool) {
        let StoreResponse::Claim(Ok(claims)) = answer else { return };
        for claimed in claims {
            let Claimed::Granted(hold) = claimed else { continue };
            let row = &mut self.rows[setup.duty(&hold.duty.id)];
            if row.holder.is_some() && row.epoch == hold.epoch {
                row.unheard = unheard;
            }
        }
    }

    /// Whether all epochs are within the bound.
    pub(super) fn is_within(&self, bounds: &ModelBounds) -> bool {
        self.rows.iter().all(|row| row.epoch.get() <= bounds.epochs)
    }

    /// Whether a request can still change something when it arrives.
    pub(super) fn may_matter(&self, instance: usize, request: &StoreRequest) -> bool {
        match request {
            StoreRequest::Open(open) => self.opened[instance] != Some(open.nonce),
            StoreRequest::KeepAlive { session, .. }
            | StoreRequest::Claim { session, .. }
            | StoreRequest::Release { session, .. }
            | StoreRequest::Close { session, .. } => self.is_live(instance, session.nonce),
            StoreRequest::Look { .. } | StoreRequest::Settle { .. } => false,
        }
    }

    /// Whether an instance was granted a duty under this epoch. Only the newest grant of each duty
    /// is remembered, so older ones count as granted.
    pub(super) fn was_granted(&self, by: usize, duty: usize, epoch: Epoch) -> bool {
        let row = &self.rows[duty];
        epoch < row.epoch || epoch == row.epoch && row.last == by
    }

    /// Whether an instance holds a duty under this epoch.
    pub(super) fn stands(&self, by: usize, duty: usize, epoch: Epoch) -> bool {
        let row = &self.rows[duty];
        row.holder == Some(by) && row.epoch == epoch
    }

    /// Whether a session holds a grant that it has not learned of.
    pub(super) fn has_unheard(&self, by: usize) -> bool {
        self.rows.iter().any(|row| row.holder == Some(by) && row.unheard)
    }

    /// Replaces the nonce of an instance's session, unless that nonce is not `from`.
    pub(super) fn rename(&mut self, by: usize, from: Nonce, to: Nonce) -> bool {
        if self.sessions[by].as_ref().is_some_and(|open| open.nonce != from) {
            return false;
        }
        self.sessions[by].iter_mut().for_each(|open| open.nonce = to);
        // An older nonce is never used again.
        self.opened[by] = self.opened[by].filter(|nonce| *nonce == from).map(|_| to);
        true
    }

    /// Whether the holder has not learned of the newest grant of a duty.
    pub(super) fn is_unheard(&self, duty: usize) -> bool {
        self.rows[duty].unheard
    }

    pub(super) fn is_live(&self, instance: usize, nonce: Nonce) -> bool {
        self.sessions[instance].as_ref().is_some_and(|open| open.nonce == nonce)
    }

    /// Executes a request and adds the resulting occurrences.
    pub(super) fn serve(
        &mut self,
        setup: &Setup,
        by: usize,
        request: &StoreRequest,
        happened: &mut Vec<What>,
    ) -> StoreResponse {
        match request {
            StoreRequest::Open(open) => StoreResponse::Open(Ok(self.open(by, open))),
            StoreRequest::KeepAlive { session, note, holds } => {
                let kept = self.keep_alive(setup, by, session, note.as_ref(), holds);
                StoreResponse::KeepAlive(Ok(kept))
            }
            StoreRequest::Claim { session, wants, .. } => {
                let claims =
                    wants.iter().map(|want| self.claim(setup, by, session, want, happened));
                StoreResponse::Claim(Ok(claims.collect()))
            }
            StoreRequest::Release { session, holds, .. } => {
                let released =
                    holds.iter().map(|hold| self.release(setup, by, session, hold, happened));
                StoreResponse::Release(Ok(released.collect()))
            }
            StoreRequest::Close { session, .. } => {
                StoreResponse::Close(Ok(self.close(by, session, happened)))
            }
            StoreRequest::Look { .. } => StoreResponse::Look(Ok(self.view(setup))),
            // The document exists from the start.
            StoreRequest::Settle { .. } => {
                StoreResponse::Settle(Ok(Replaced::Conflict { stored: setup.document.version }))
            }
        }
    }

    fn open(&mut self, by: usize, open: &OpenSession) -> Opened {
        match &self.sessions[by] {
            Some(live) if live.nonce == open.nonce => Opened::Open(open.session()),
            Some(_) => Opened::Taken,
            None if self.opened[by] == Some(open.nonce) => Opened::Spent,
            None => {
                self.opened[by] = Some(open.nonce);
                let (nonce, note) = (open.nonce, open.note.clone());
                self.sessions[by] = Some(Open { nonce, note, renewed: true });
                Opened::Open(open.session())
            }
        }
    }

    fn keep_alive(
        &mut self,
        setup: &Setup,
        by: usize,
        session: &Session,
        note: Option<&Note>,
        holds: &[Hold],
    ) -> KeptAlive {
        let live = self.sessions[by].as_mut().filter(|open| open.nonce == session.nonce);
        let Some(open) = live else { return KeptAlive::Ended };
        open.renewed = true;
        if let Some(note) = note {
            open.note = note.clone();
        }
        let stands = |hold: &Hold| {
            let row = &self.rows[setup.duty(&hold.duty.id)];
            row.holder == Some(by) && row.epoch == hold.epoch
        };
        let fate = |hold| if stands(hold) { HoldFate::Kept } else { HoldFate::Lost };
        KeptAlive::Kept { mark: Mark::default(), holds: holds.iter().map(fate).collect() }
    }

    fn claim(
        &mut self,
        setup: &Setup,
        by: usize,
        session: &Session,
        want: &ClaimRequest,
        happened: &mut Vec<What>,
    ) -> Claimed {
        if !self.is_live(by, session.nonce) {
            return Claimed::SessionEnded;
        }
        let row = &mut self.rows[setup.duty(&want.duty.id)];
        let hold = |epoch| Hold {
            duty: want.duty.clone(),
            epoch,
            instance: session.instance.clone(),
            nonce: session.nonce,
            mark: Mark::default(),
        };
        match row.holder {
            Some(holder) if holder == by => Claimed::Already(hold(row.epoch)),
            Some(holder) => Claimed::HeldBy(Some(setup.holder(holder))),
            None => {
                let before = row.newest();
                let grows = setup.without != Without::Growth || before.epoch == Epoch::ZERO;
                let floor = before.epoch.max(want.floor);
                // Epochs are small, so there is always a next one.
                row.epoch = if grows { floor.next().unwrap_or(floor) } else { before.epoch };
                (row.holder, row.last) = (Some(by), by);
                let duty = setup.duty(&want.duty.id);
                happened.push(What::Granted { duty, before, now: row.newest() });
                if let Some(how) = row.ended.take().filter(|_| before.to != by) {
                    happened.push(match how {
                        What::Expired => What::TakenOver,
                        _ => What::HandedOver,
                    });
                }
                Claimed::Granted(hold(row.epoch))
            }
        }
    }

    fn release(
        &mut self,
        setup: &Setup,
        by: usize,
        session: &Session,
        hold: &Hold,
        happened: &mut Vec<What>,
    ) -> Released {
        let live = self.is_live(by, session.nonce);
        let row = &mut self.rows[setup.duty(&hold.duty.id)];
        if row.epoch != hold.epoch {
            return Released::NotYours;
        }
        if row.holder != Some(by) || !live {
            return Released::Already;
        }
        row.holder = None;
        row.ended = Some(What::Released);
        happened.push(What::Released);
        // A member that never learned of the grant has found it by a look.
        if std::mem::take(&mut row.unheard) {
            happened.push(What::UnknownClaimResolved);
        }
        Released::Freed
    }

    fn close(&mut self, by: usize, session: &Session, happened: &mut Vec<What>) -> Closed {
        if !self.is_live(by, session.nonce) {
            return Closed::AlreadyEnded;
        }
        let held = self.rows.iter().filter(|row| row.holder == Some(by)).count();
        happened.extend(std::iter::repeat_n(What::Released, held));
        self.end(by, What::Released);
        Closed::Closed
    }

    fn view(&self, setup: &Setup) -> GroupView {
        let member = |(at, open): (usize, &Option<Open>)| {
            let open = open.as_ref()?;
            Some(Member {
                instance: setup.instances[at].clone(),
                nonce: Some(open.nonce),
                note: open.note.clone(),
                remaining: setup.ttl.get(),
                evicted: false,
            })
        };
        let granted = self.rows.iter().enumerate().filter(|(_, row)| row.epoch > Epoch::ZERO);
        let holders = granted.map(|(duty, row)| Holder {
            duty: setup.key(duty),
            epoch: Some(row.epoch),
            holder: row.holder.map(|holder| setup.holder(holder)),
        });
        GroupView {
            members: self.sessions.iter().enumerate().filter_map(member).collect(),
            holders: Some(holders.collect()),
            document: setup.document.clone(),
        }
    }

    /// Commits a checkpoint. It expects any stored version, and the newest holder has committed at
    /// once: only the fence can and must refuse it.
    pub(super) fn commit(&self, setup: &Setup, by: usize, commit: &ModelCommit) -> What {
        let live = self.is_live(by, commit.nonce);
        let row = &self.rows[commit.duty];
        let stands = live && row.holder == Some(by) && row.epoch == commit.epoch;
        if setup.without != Without::Fence && !stands {
            return What::CommitRefused;
        }
        let under = ModelGrant { epoch: commit.epoch, to: by };
        What::Committed { duty: commit.duty, newest: row.newest(), under }
    }
}

impl Setup {
    /// Returns a holder as a look shows it. The time left only appears in the text of a record.
    fn holder(&self, instance: usize) -> CurrentHolder {
        CurrentHolder { instance: self.instances[instance].clone(), remaining: Duration::ZERO }
    }
}

/// Returns the document of a group whose settings were written before the first member joined.
pub(super) fn settled(group: &tenure_core::engine::GroupConfig) -> GroupDocument {
    // A document of few lines is always valid.
    let document = group.document().expect("a valid document");
    GroupDocument { version: tenure_core::Version::new(1).unwrap_or_default(), document }
}
