//! Choices of one member: its possible next steps. They depend only on that member and on the
//! store, so they are computed once per pair, however many states contain it.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};

use tenure_core::engine::EngineEvent;

use super::member::{Faults, Loss, ModelMember, ModelWork, ModelWorkMode, RequestKind};
use super::shared::SharedPart;
use super::store::ModelStore;
use super::{Setup, What};

/// A possible next step and its result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    step: MemberStep,
    pub(super) member: SharedPart<ModelMember>,
    pub(super) store: SharedPart<ModelStore>,
    /// Whether its session was opened or extended.
    pub(super) renewed: bool,
    /// The rules that it breaks.
    pub(super) broken: Vec<&'static str>,
    /// Events to count whenever this choice is possible.
    pub(super) happened: Vec<What>,
    /// Whether it changes nothing and only counts.
    pub(super) idle: bool,
}

/// A step of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MemberStep {
    /// Its engine is stepped; requests of one kind may be late, and replies may be lost.
    Turn { cause: ChoiceCause, late: Option<RequestKind>, lost: Vec<Loss> },
    /// A late request reaches the store.
    Arrive(usize),
    /// A request that was given up reaches the store.
    Haunt,
    /// A request that was given up is lost.
    Vanish,
    /// The store ends its session.
    Expire,
    /// A commit that work sent at some time since it started reaches the store.
    Commit(usize),
}

/// Why an engine is stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChoiceCause {
    /// Its wake-up time has come.
    Tick,
    /// The response to a late request arrives.
    Answer(usize),
    /// A request is given up: its outcome is unknown.
    GiveUp(usize),
    /// Work that was asked to stop, or cancelled, has stopped.
    Stopped(usize),
    /// It is asked to hand over and leave.
    Drain,
}

impl Choice {
    /// Whether it is possible only after the TTL of the session.
    pub(super) fn is_expiry(&self) -> bool {
        self.step == MemberStep::Expire
    }

    /// Returns the number of lost replies, and whether messages are late.
    pub(super) fn faults(&self) -> (usize, bool) {
        match &self.step {
            MemberStep::Turn { late, lost, .. } => (lost.len(), late.is_some()),
            _ => (0, false),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            MemberStep::Turn { cause, late, lost } => {
                write!(f, "{cause:?}")?;
                if let Some(kind) = late {
                    write!(f, "; {kind:?} is late")?;
                }
                for Loss { kind, happened, .. } in lost {
                    let what = if *happened { "the reply to" } else { "the request" };
                    write!(f, "; {what} {kind:?} is lost")?;
                }
                Ok(())
            }
            MemberStep::Arrive(late) => write!(f, "late request {late} arrives"),
            MemberStep::Haunt => f.write_str("the request that was given up arrives"),
            MemberStep::Vanish => f.write_str("the request that was given up is lost"),
            MemberStep::Expire => f.write_str("the store ends its session"),
            MemberStep::Commit(work) => write!(f, "a commit of its work {work} arrives"),
        }
    }
}

/// All choices of one member.
pub(super) type Choices = Arc<[Arc<Choice>]>;

/// Cache of computed choices.
#[derive(Debug, Default)]
pub(super) struct Memo {
    choices: HashMap<(u64, u64), Choices>,
    members: HashMap<u64, SharedPart<ModelMember>>,
    stores: HashMap<u64, SharedPart<ModelStore>>,
    /// Members after one step of time.
    later: HashMap<u64, SharedPart<ModelMember>>,
}

impl Setup {
    fn memo(&self) -> MutexGuard<'_, Memo> {
        self.memo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the shared copy of a member.
    pub(super) fn share(&self, member: ModelMember) -> SharedPart<ModelMember> {
        let shared = SharedPart::new(member);
        self.memo().members.entry(shared.whole()).or_insert(shared).clone()
    }

    pub(super) fn share_store(&self, store: ModelStore) -> SharedPart<ModelStore> {
        let shared = SharedPart::new(store);
        self.memo().stores.entry(shared.whole()).or_insert(shared).clone()
    }

    /// Returns a member after a step of time.
    pub(super) fn later(
        &self,
        at: usize,
        member: &SharedPart<ModelMember>,
    ) -> SharedPart<ModelMember> {
        if let Some(later) = self.memo().later.get(&member.whole()) {
            return later.clone();
        }
        let mut later = member.get().clone();
        later.pass(at, self.bounds.delay);
        let later = self.share(later);
        self.memo().later.insert(member.whole(), later.clone());
        later
    }

    /// Returns all choices of a member, except those that neither change nor count anything.
    pub(super) fn choices(
        &self,
        at: usize,
        member: &SharedPart<ModelMember>,
        store: &SharedPart<ModelStore>,
    ) -> Choices {
        let key = (member.whole(), store.whole());
        if let Some(known) = self.memo().choices.get(&key) {
            return Arc::clone(known);
        }
        let mut choices: Vec<Arc<Choice>> = Vec::new();
        let before = (member.get(), store.get());
        let causes = self.causes(at, before.0).into_iter();
        let turns = causes.flat_map(|cause| self.turns(at, before, cause));
        let steps = self.steps(at, before.0, before.1).into_iter();
        for choice in turns.chain(steps.map(|step| self.choice(at, before, step))) {
            let (lost, late) = choice.faults();
            // A choice with fewer faults replaces an equal one with more.
            let same = |one: &Choice| {
                one.faults().0 <= lost
                    && one.faults().1 <= late
                    && one.happened == choice.happened
                    && one.member == choice.member
                    && one.store.whole() == choice.store.whole()
                    && one.renewed == choice.renewed
                    && one.broken == choice.broken
            };
            let idle = choice.broken.is_empty()
                && !choice.renewed
                && choice.member == *member
                && choice.store.whole() == store.whole();
            let counts = !idle || !choice.happened.is_empty();
            if counts && !choices.iter().any(|one| same(one)) {
                choices.push(Arc::new(Choice { idle, ..choice }));
            }
        }
        let choices = Choices::from(choices);
        self.memo().choices.insert(key, Arc::clone(&choices));
        choices
    }

    /// Returns the steps of a member besides the turns of its engine.
    fn steps(&self, at: usize, member: &ModelMember, store: &ModelStore) -> Vec<MemberStep> {
        let bounds = &self.bounds;
        let mut steps = Vec::new();
        let waiting = member.late.iter().enumerate().filter(|(_, late)| {
            late.answer.is_none() && (bounds.stale || late.kind != RequestKind::Look)
        });
        steps.extend(waiting.map(|(late, _)| MemberStep::Arrive(late)));
        if member.ghost.is_some() {
            steps.extend([MemberStep::Haunt, MemberStep::Vanish]);
        }
        if store.has_session(at) {
            steps.push(MemberStep::Expire);
        }
        steps.extend((0..member.works.len()).map(MemberStep::Commit));
        steps
    }

    fn causes(&self, at: usize, member: &ModelMember) -> Vec<ChoiceCause> {
        let mut causes = Vec::new();
        if member.is_due() {
            causes.push(ChoiceCause::Tick);
        }
        for (at, message) in member.late.iter().enumerate() {
            if message.answer.is_some() || message.kind == RequestKind::Look && !self.bounds.stale {
                causes.push(ChoiceCause::Answer(at));
            }
            causes.push(ChoiceCause::GiveUp(at));
        }
        let stopping = |(_, work): &(usize, &ModelWork)| work.mode != ModelWorkMode::Runs;
        let works = member.works.iter().enumerate().filter(stopping);
        causes.extend(works.map(|(at, _)| ChoiceCause::Stopped(at)));
        if at < self.bounds.drained && !member.drained && !member.over {
            causes.push(ChoiceCause::Drain);
        }
        causes
    }

    /// Returns every turn for a cause: without faults, with each kind of request late, and with
    /// each combination of lost replies up to the bound, each request executed or not.
    fn turns(
        &self,
        at: usize,
        before: (&ModelMember, &ModelStore),
        cause: ChoiceCause,
    ) -> Vec<Choice> {
        let mut faults = vec![(None, Vec::new())];
        let mut turns = Vec::new();
        while let Some((late, lost)) = faults.get(turns.len()).cloned() {
            let Some((choice, asked)) = self.turn(at, before, cause, late, &lost) else { break };
            turns.push(choice);
            if self.bounds.late > 0 && late.is_none() && lost.is_empty() {
                let kinds: BTreeSet<_> = asked.iter().copied().collect();
                faults.extend(kinds.into_iter().map(|kind| (Some(kind), Vec::new())));
            }
            if lost.len() == self.bounds.lost {
                continue;
            }
            let from = lost.last().map_or(0, |loss: &Loss| loss.nth + 1);
            for (nth, kind) in asked.into_iter().enumerate().skip(from) {
                // A read changes nothing, so a lost request and a lost reply are equivalent.
                let done =
                    [false, true].into_iter().filter(|done| !done || kind != RequestKind::Look);
                for happened in done.filter(|_| late != Some(kind)) {
                    let loss = Loss { nth, kind, happened };
                    faults.push((late, lost.iter().copied().chain([loss]).collect()));
                }
            }
        }
        turns
    }

    /// Computes one turn and the kinds of requests that it sent.
    fn turn(
        &self,
        at: usize,
        (member, store): (&ModelMember, &ModelStore),
        cause: ChoiceCause,
        late: Option<RequestKind>,
        lost: &[Loss],
    ) -> Option<(Choice, Vec<RequestKind>)> {
        let (mut member, mut store) = (member.clone(), store.clone());
        let event = self.event(at, &mut member, &mut store, cause)?;
        let turn = member.turn(self, &mut store, at, event, &Faults { late, lost });
        member.settle(&mut store, at, !lost.is_empty());
        let step = MemberStep::Turn { cause, late, lost: lost.to_vec() };
        Some((self.judged(at, step, member, store, turn.happened, turn.broken), turn.asked))
    }

    fn event(
        &self,
        at: usize,
        member: &mut ModelMember,
        store: &mut ModelStore,
        cause: ChoiceCause,
    ) -> Option<EngineEvent> {
        Some(match cause {
            ChoiceCause::Tick => member.tick(self),
            ChoiceCause::Answer(message) => {
                member.arrive(self, store, at, message);
                member.deliver(self, store, message)?
            }
            ChoiceCause::GiveUp(message) => member.give_up(message),
            ChoiceCause::Stopped(work) => member.stop(self, work),
            ChoiceCause::Drain => {
                member.drained = true;
                EngineEvent::Drain
            }
        })
    }

    fn choice(&self, at: usize, before: (&ModelMember, &ModelStore), step: MemberStep) -> Choice {
        let (mut member, mut store) = (before.0.clone(), before.1.clone());
        let happened = match &step {
            MemberStep::Turn { .. } => Vec::new(),
            MemberStep::Arrive(late) => member.arrive(self, &mut store, at, *late),
            MemberStep::Haunt => member.haunt(self, &mut store, at),
            MemberStep::Vanish => {
                member.ghost = None;
                Vec::new()
            }
            MemberStep::Expire => {
                store.end(at, What::Expired);
                vec![What::Expired]
            }
            MemberStep::Commit(work) => vec![store.commit(self, at, &member.works[*work].commit())],
        };
        self.judged(at, step, member, store, happened, Vec::new())
    }

    fn judged(
        &self,
        at: usize,
        step: MemberStep,
        member: ModelMember,
        mut store: ModelStore,
        happened: Vec<What>,
        mut broken: Vec<&'static str>,
    ) -> Choice {
        broken.extend(self.judge(&happened));
        broken.sort_unstable();
        broken.dedup();
        let renewed = store.take_renewed(at);
        let (member, store) = (self.share(member), self.share_store(store));
        Choice { step, member, store, renewed, broken, happened, idle: false }
    }
}
