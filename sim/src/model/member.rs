//! One member of the model: the real engine, the work that it started, and its pending messages.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::engine::{
    Effect, Engine, EngineEvent, Fold, StoreRequest, StoreResponse, Ticket, WorkOutcome,
};
use tenure_core::{Code, Deadline, Epoch, LocalInstant, Nonce, StoreError};

use super::shared::StatePart;
use super::store::{ModelCommit, ModelStore};
use super::{MODEL_STEP, NOW, Setup, What, Without};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RequestKind {
    /// Joining.
    Open,
    /// Renewing the session.
    KeepAlive,
    /// Claiming duties.
    Claim,
    /// Releasing duties.
    Release,
    /// Leaving.
    Close,
    /// Reading the group.
    Look,
}

impl RequestKind {
    fn of(request: &StoreRequest) -> Self {
        match request {
            StoreRequest::Open(_) => Self::Open,
            StoreRequest::KeepAlive { .. } => Self::KeepAlive,
            StoreRequest::Claim { .. } => Self::Claim,
            StoreRequest::Release { .. } => Self::Release,
            StoreRequest::Close { .. } => Self::Close,
            StoreRequest::Look { .. } | StoreRequest::Settle { .. } => Self::Look,
        }
    }

    /// Returns the response for an unknown outcome.
    fn unknown(self) -> StoreResponse {
        let error = StoreError::unknown(Code::Lost, "no answer");
        match self {
            Self::Open => StoreResponse::Open(Err(error)),
            Self::KeepAlive => StoreResponse::KeepAlive(Err(error)),
            Self::Claim => StoreResponse::Claim(Err(error)),
            Self::Release => StoreResponse::Release(Err(error)),
            Self::Close => StoreResponse::Close(Err(error)),
            Self::Look => StoreResponse::Look(Err(error)),
        }
    }
}

/// A lost request or reply: the engine learns at once that the outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    /// Index of the request within the turn.
    pub(super) nth: usize,
    pub(super) kind: RequestKind,
    /// Whether the request reached the store.
    pub(super) happened: bool,
}

/// Faults of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults<'a> {
    /// Requests of this kind are late.
    pub(super) late: Option<RequestKind>,
    pub(super) lost: &'a [Loss],
}

/// Work that was started under a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelWork {
    pub(super) duty: usize,
    pub(super) epoch: Epoch,
    nonce: Nonce,
    deadline: Deadline,
    suspended: bool,
    pub(super) mode: ModelWorkMode,
}

/// The last order that the work was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ModelWorkMode {
    Runs,
    Asked,
    Cancelled,
}

impl ModelWork {
    /// Whether it believes that it may act, by its own clock.
    pub(super) fn may_act(&self) -> bool {
        self.mode != ModelWorkMode::Cancelled && !self.suspended && self.deadline.allows(NOW)
    }

    /// Returns until when it believes so, without further messages.
    pub(super) fn until(&self) -> LocalInstant {
        self.deadline.at()
    }

    /// Returns a commit that it sent while it believed that it may act.
    pub(super) fn commit(&self) -> ModelCommit {
        ModelCommit { duty: self.duty, epoch: self.epoch, nonce: self.nonce }
    }
}

/// A request without a response so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Late {
    ticket: Ticket,
    pub(super) kind: RequestKind,
    request: StoreRequest,
    /// The response, if the request has reached the store.
    pub(super) answer: Option<StoreResponse>,
    /// Number of steps since it was sent.
    age: u8,
}

/// A request that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ghost {
    request: StoreRequest,
    /// Number of steps since it was given up.
    age: u8,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelMember {
    engine: Engine,
    pub(super) works: Vec<ModelWork>,
    /// Requests whose responses the engine waits for.
    pub(super) late: Vec<Late>,
    /// A request that was given up and may still arrive.
    pub(super) ghost: Option<Ghost>,
    /// Which of two seeds the next nonce is drawn from. Two are enough, because only the current
    /// and the previous nonce matter.
    seed: u8,
    nonce: Option<Nonce>,
    /// Whether a reply was lost and the engine has not recovered from that.
    pub(super) troubled: bool,
    /// Whether it was asked to hand over and leave.
    pub(super) drained: bool,
    began: bool,
    pub(super) over: bool,
}

impl StatePart for ModelMember {}

/// Result of one event of a member.
#[derive(Debug, Default)]
pub(super) struct EngineTurn {
    /// The kinds of requests that were sent, in order.
    pub(super) asked: Vec<RequestKind>,
    pub(super) happened: Vec<What>,
    /// The rules that the engine broke.
    pub(super) broken: Vec<&'static str>,
}

impl ModelMember {
    pub(super) fn new(setup: &Setup, at: usize) -> Self {
        let engine = Engine::new(setup.settings(at), seed(at, 0), NOW);
        Self {
            engine,
            works: Vec::new(),
            late: Vec::new(),
            ghost: None,
            seed: 0,
            nonce: None,
            troubled: false,
            drained: false,
            began: false,
            over: false,
        }
    }

    /// Returns the tick; the first one brings the list of duties.
    pub(super) fn tick(&mut self, setup: &Setup) -> EngineEvent {
        match std::mem::replace(&mut self.began, true) {
            true => EngineEvent::Tick,
            false => EngineEvent::Listed(setup.listing.clone()),
        }
    }

    pub(super) fn is_due(&self) -> bool {
        !self.over && self.engine.wake_at() <= NOW
    }

    /// Whether a message must be answered or given up before time passes: a member that is not
    /// paused waits no longer, and the network delays nothing for longer.
    pub(super) fn is_urgent(&self, delay: u8) -> bool {
        let waits = self.late.iter().any(|late| late.age >= delay) && !self.is_due();
        waits || self.ghost.as_ref().is_some_and(|ghost| ghost.age >= delay)
    }

    /// Advances by a step of time.
    pub(super) fn pass(&mut self, at: usize, delay: u8) {
        for age in self.late.iter_mut().map(|late| &mut late.age) {
            *age = delay.min(*age + 1);
        }
        if let Some(ghost) = &mut self.ghost {
            ghost.age += 1;
        }
        self.fold(at, MODEL_STEP);
    }

    /// Returns the number of its late messages.
    pub(super) fn late_messages(&self) -> usize {
        self.late.len() + usize::from(self.ghost.is_some())
    }

    /// Steps the engine and executes its effects at once, until no event is left.
    pub(super) fn turn(
        &mut self,
        setup: &Setup,
        store: &mut ModelStore,
        at: usize,
        event: EngineEvent,
        faults: &Faults<'_>,
    ) -> EngineTurn {
        let mut turn = EngineTurn::default();
        let mut events = VecDeque::from([event]);
        let mut steps = 0;
        // Epochs above the bound are not explored, so such a turn need not finish.
        while store.is_within(&setup.bounds)
            && let Some(event) = events.pop_front()
        {
            steps += 1;
            assert!(steps < 100, "i{at} spins without progress");
            for effect in self.engine.step(event, NOW) {
                let Effect::Ask { ticket, request, .. } = effect else {
                    if effect == Effect::Suspend {
                        turn.happened.push(What::PauseNoticed);
                    }
                    turn.broken.extend(self.wrong_effect(setup, store, at, &effect));
                    self.obey(setup, effect, &mut events);
                    continue;
                };
                let kind = RequestKind::of(&request);
                let nth = turn.asked.len();
                turn.asked.push(kind);
                turn.broken.extend(self.wrong_request(setup, store, at, &request));
                self.count_session(&request);
                if faults.late == Some(kind) {
                    self.late.push(Late { ticket, kind, request, answer: None, age: 0 });
                    continue;
                }
                let loss = faults.lost.iter().find(|loss| loss.nth == nth);
                let answer = match loss.map(|loss| loss.happened) {
                    None => store.serve(setup, at, &request, &mut turn.happened),
                    Some(happened) => {
                        if happened {
                            let answer = store.serve(setup, at, &request, &mut turn.happened);
                            store.mark_unheard(setup, &answer, true);
                        }
                        kind.unknown()
                    }
                };
                events.push_back(EngineEvent::Answered(ticket, answer));
            }
        }
        self.fold(at, Duration::ZERO);
        turn
    }

    /// Notes a new session: it used one nonce, so the next one comes from the other seed.
    fn count_session(&mut self, request: &StoreRequest) {
        if let StoreRequest::Open(open) = request
            && self.nonce != Some(open.nonce)
        {
            self.nonce = Some(open.nonce);
            self.seed ^= 1;
        }
    }

    fn obey(&mut self, setup: &Setup, effect: Effect, events: &mut VecDeque<EngineEvent>) {
        match effect {
            Effect::Assign { hold, deadline } => {
                let duty = setup.duty(&hold.duty.id);
                let (epoch, nonce, mode) = (hold.epoch, hold.nonce, ModelWorkMode::Runs);
                self.works.push(ModelWork { duty, epoch, nonce, deadline, suspended: false, mode });
            }
            Effect::Extend { duty, epoch, deadline } => {
                let duty = setup.duty(&duty);
                for work in
                    self.works.iter_mut().filter(|work| (work.duty, work.epoch) == (duty, epoch))
                {
                    (work.deadline, work.suspended) = (deadline, false);
                }
            }
            Effect::Suspend => self.works.iter_mut().for_each(|work| work.suspended = true),
            Effect::Drain { duty, epoch, .. } => {
                self.tell(setup.duty(&duty), epoch, ModelWorkMode::Asked);
            }
            Effect::Revoke { duty, epoch, .. } => {
                self.tell(setup.duty(&duty), epoch, ModelWorkMode::Cancelled);
                if setup.without == Without::Stopping {
                    events.push_back(EngineEvent::Stopped { duty, epoch, how: WorkOutcome::Asked });
                } else if !setup.bounds.lingers {
                    events.extend(self.stop_cancelled(setup));
                }
            }
            Effect::End(_) => self.over = true,
            Effect::Ask { .. } | Effect::Record(_) | Effect::Refuse(_) => {}
        }
    }

    fn stop_cancelled(&mut self, setup: &Setup) -> Option<EngineEvent> {
        let at = self.works.iter().position(|work| work.mode == ModelWorkMode::Cancelled)?;
        Some(self.stop(setup, at))
    }

    fn tell(&mut self, duty: usize, epoch: Epoch, mode: ModelWorkMode) {
        let same = |work: &&mut ModelWork| (work.duty, work.epoch) == (duty, epoch);
        self.works.iter_mut().filter(same).for_each(|work| work.mode = mode);
    }

    /// Stops the work with this index.
    pub(super) fn stop(&mut self, setup: &Setup, at: usize) -> EngineEvent {
        let work = self.works.remove(at);
        let duty = setup.key(work.duty).id;
        EngineEvent::Stopped { duty, epoch: work.epoch, how: WorkOutcome::Asked }
    }

    /// Delivers a late request to the store.
    pub(super) fn arrive(
        &mut self,
        setup: &Setup,
        store: &mut ModelStore,
        at: usize,
        late: usize,
    ) -> Vec<What> {
        let mut happened = Vec::new();
        let message = &mut self.late[late];
        if message.answer.is_some() {
            return happened;
        }
        let answer = store.serve(setup, at, &message.request, &mut happened);
        store.mark_unheard(setup, &answer, true);
        message.answer = Some(answer);
        happened
    }

    /// Delivers a request that was given up to the store.
    pub(super) fn haunt(&mut self, setup: &Setup, store: &mut ModelStore, at: usize) -> Vec<What> {
        let mut happened = Vec::new();
        if let Some(ghost) = self.ghost.take() {
            let answer = store.serve(setup, at, &ghost.request, &mut happened);
            store.mark_unheard(setup, &answer, true);
        }
        happened
    }

    /// Returns the late response as an event, if it is there.
    pub(super) fn deliver(
        &mut self,
        setup: &Setup,
        store: &mut ModelStore,
        late: usize,
    ) -> Option<EngineEvent> {
        let message = self.late.remove(late);
        let answer = message.answer?;
        store.mark_unheard(setup, &answer, false);
        Some(EngineEvent::Answered(message.ticket, answer))
    }

    /// Gives up a request: the outcome is unknown, and it may still arrive.
    pub(super) fn give_up(&mut self, late: usize) -> EngineEvent {
        let message = self.late.remove(late);
        if message.answer.is_none() {
            self.haunt_later(message.request);
        }
        EngineEvent::Answered(message.ticket, message.kind.unknown())
    }

    fn haunt_later(&mut self, request: StoreRequest) {
        if !matches!(request, StoreRequest::Look { .. } | StoreRequest::Settle { .. }) {
            self.ghost = Some(Ghost { request, age: 0 });
        }
    }

    /// Updates, after a turn, whether the member is in trouble, and normalises its session's nonce.
    pub(super) fn settle(&mut self, store: &mut ModelStore, at: usize, lost: bool) {
        let unsure = !self.engine.is_settled() || store.has_unheard(at);
        self.troubled = !self.over && (lost || self.troubled && unsure);
        let (Some(nonce), true) = (self.nonce, self.late_messages() == 0) else { return };
        // All sessions get the same nonce, as long as nothing refers to the previous one.
        let name = Nonce::from_entropy((at as u128 + 1) << 64 | 7);
        let older = |work: &ModelWork| work.nonce != nonce;
        let remembers = self.works.iter().any(older) || self.engine.holds_beside(nonce);
        let forgotten = !remembers && store.rename(at, nonce, name);
        if forgotten && nonce != name {
            self.engine.rename(nonce, name);
            self.works.iter_mut().for_each(|work| work.nonce = name);
            (self.nonce, self.seed) = (Some(name), 0);
            self.fold(at, Duration::ZERO);
        }
    }

    /// Folds the state, after a turn or a step of time.
    pub(super) fn fold(&mut self, at: usize, passed: Duration) {
        let seed = seed(at, self.seed);
        let fold = Fold { now: NOW, passed, step: MODEL_STEP, seed };
        let tickets = self.engine.fold(&fold);
        for message in std::mem::take(&mut self.late) {
            match tickets.iter().find(|(old, _)| *old == message.ticket) {
                Some((_, ticket)) => self.late.push(Late { ticket: *ticket, ..message }),
                // The engine waits for it no longer.
                None if message.answer.is_none() => self.haunt_later(message.request),
                None => {}
            }
        }
        self.late.sort_by_key(|message| message.kind);
        self.works.iter_mut().for_each(|work| work.deadline = fold.deadline(work.deadline));
        self.works.sort_by_key(|work| (work.duty, work.epoch));
    }

    /// Drops a given-up request that can change nothing any more.
    pub(super) fn tidy(&self, store: &ModelStore, at: usize) -> Option<Self> {
        let ghost = self.ghost.as_ref();
        let spent = ghost.is_some_and(|ghost| !store.may_matter(at, &ghost.request));
        spent.then(|| Self { ghost: None, ..self.clone() })
    }
}

fn seed(at: usize, which: u8) -> u128 {
    (at as u128 + 1) << 64 | u128::from(which)
}
