//! Properties of the model: what must always hold, and what must be reachable.

use stateright::Property;
use tenure_core::engine::{Effect, StoreRequest};
use tenure_core::invariant::{self, Step};
use tenure_core::{Epoch, Hold, Version};

use super::member::{ModelMember, ModelWork, ModelWorkMode};
use super::store::ModelStore;
use super::{ModelGrant, ModelState, NOW, Setup, What, Without};

impl Setup {
    pub(super) fn rules(&self) -> Vec<Property<Self>> {
        let mut rules = vec![
            Property::always("L1", |_, state: &ModelState| !state.broken.contains(&"L1")),
            Property::always("L2", |_, state: &ModelState| !state.broken.contains(&"L2")),
            Property::always("L3", |_, state: &ModelState| !state.broken.contains(&"L3")),
            Property::always("C1", |_, state: &ModelState| !state.broken.contains(&"C1")),
            Property::always("R1", |_, state: &ModelState| !state.broken.contains(&"R1")),
            Property::always("R9", |_, state: &ModelState| !state.broken.contains(&"R9")),
            Property::always("R10", |_, state: &ModelState| !state.broken.contains(&"R10")),
            Property::always("R17", |_, state: &ModelState| !state.broken.contains(&"R17")),
            Property::always("work", |_, state: &ModelState| !state.broken.contains(&"work")),
        ];
        // If the store ends a session early, its member believes in its hold until it learns that.
        if !self.bounds.early {
            rules.push(Property::always("B1", |model: &Self, state| model.one_believes(state)));
        }
        // Not everything is reachable within a limited depth.
        if self.bounds.depth == 0 {
            rules.extend(self.reached());
        }
        rules
    }

    /// Returns the properties that must be reachable. They use counters, so that states that differ
    /// only in their past stay equal.
    fn reached(&self) -> Vec<Property<Self>> {
        let mut reached = vec![
            Property::sometimes("a handover", |model: &Self, _| model.counted("handovers") > 0),
            Property::sometimes("a takeover after expiry", |model: &Self, _| {
                model.counted("takeovers after expiry") > 0
            }),
            Property::sometimes("a stale commit is refused", |model: &Self, _| {
                model.counted("stale commits refused") > 0
            }),
        ];
        if self.bounds.paused > 0 {
            reached.push(Property::sometimes("a pause is noticed", |model: &Self, _| {
                model.counted("pauses noticed") > 0
            }));
        }
        if self.bounds.late > 0 || self.bounds.lost > 0 {
            reached.push(Property::sometimes("an unknown claim is resolved", |model: &Self, _| {
                model.counted("unknown claims resolved") > 0
            }));
        }
        reached
    }

    /// Whether work may have effects by its own clock.
    pub(super) fn may_act(&self, work: &ModelWork) -> bool {
        let told = work.mode == ModelWorkMode::Cancelled;
        work.may_act() || self.without == Without::Deadline && !told
    }

    fn one_believes(&self, state: &ModelState) -> bool {
        let mut duties = [false; 8];
        let members = state.members.iter();
        let mut acting = members.flat_map(|one| &one.get().works).filter(|work| self.may_act(work));
        // Shortcut: usually at most one work per duty may act.
        if !acting.any(|work| std::mem::replace(&mut duties[work.duty % 8], true)) {
            return true;
        }
        let mut beliefs = Vec::new();
        for (at, member) in state.members.iter().enumerate() {
            for work in member.get().works.iter().filter(|work| self.may_act(work)) {
                beliefs.push(Step::Believed {
                    duty: self.key(work.duty),
                    epoch: work.epoch,
                    instance: self.instances[at].clone(),
                    from: NOW.as_nanos(),
                    until: work.until().as_nanos().max(NOW.as_nanos() + 1),
                });
            }
        }
        invariant::one_believes(&beliefs).is_ok()
    }

    /// Judges the new occurrences together with the earlier ones that the state remembers, which is
    /// all that each invariant needs.
    pub(super) fn judge(&self, happened: &[What]) -> Vec<&'static str> {
        let mut broken = Vec::new();
        for what in happened {
            let found = invariant::check(&self.history(*what)).err().unwrap_or_default();
            broken.extend(found.iter().map(|violation| violation.rule));
        }
        broken
    }

    fn history(&self, what: What) -> Vec<Step> {
        match what {
            What::Granted { duty, before, now } => {
                let grants = [before, now].into_iter().filter(|grant| grant.epoch > Epoch::ZERO);
                let granted = |ModelGrant { epoch, to }| {
                    let instance = self.instances[to].clone();
                    Step::Granted { duty: self.key(duty), epoch, instance }
                };
                grants.map(granted).collect()
            }
            What::Committed { duty, newest, under } => {
                let steps =
                    (1..).zip([newest, under]).flat_map(|(number, ModelGrant { epoch, to })| {
                        let version = Version::new(number).unwrap_or_default();
                        let (instance, event) = (self.instances[to].clone(), number.to_string());
                        let duty = self.key(duty);
                        [
                            Step::Effect { duty: duty.clone(), epoch, instance, event },
                            Step::Committed { duty, epoch, version },
                        ]
                    });
                steps.collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Checks of the engine itself, by its requests and orders.
impl ModelMember {
    /// Returns the rule that a request breaks.
    pub(super) fn wrong_request(
        &self,
        setup: &Setup,
        store: &ModelStore,
        at: usize,
        request: &StoreRequest,
    ) -> Option<&'static str> {
        let holds = match request {
            StoreRequest::KeepAlive { holds, .. } | StoreRequest::Release { holds, .. } => {
                &holds[..]
            }
            _ => &[],
        };
        // If all responses arrive at once, a live session has every hold that it names.
        let hears = setup.bounds.lost == 0 && setup.bounds.late == 0;
        let named = |hold: &Hold| {
            let duty = setup.duty(&hold.duty.id);
            let stands = store.stands(at, duty, hold.epoch);
            let may_stand = stands || !hears || !store.is_live(at, hold.nonce);
            may_stand && store.was_granted(at, duty, hold.epoch)
        };
        let session = match request {
            StoreRequest::KeepAlive { session, .. } | StoreRequest::Release { session, .. } => {
                Some(session)
            }
            _ => None,
        };
        let own = |hold: &Hold| session.is_none_or(|session| hold.is_of(session));
        if !holds.iter().all(|hold| named(hold) && own(hold)) {
            return Some("R9");
        }
        let acts = |work: &ModelWork| match request {
            StoreRequest::Release { holds, .. } => {
                let same = |hold: &Hold| setup.duty(&hold.duty.id) == work.duty;
                work.may_act() && holds.iter().any(same)
            }
            StoreRequest::Close { .. } => work.may_act(),
            _ => false,
        };
        self.works.iter().any(acts).then_some("R10")
    }

    /// Returns the rule that an order of the engine breaks.
    pub(super) fn wrong_effect(
        &self,
        setup: &Setup,
        store: &ModelStore,
        at: usize,
        effect: &Effect,
    ) -> Option<&'static str> {
        let Effect::Assign { hold, .. } = effect else { return None };
        let duty = setup.duty(&hold.duty.id);
        // A late grant may have ended before the response arrives.
        let granted = match setup.bounds.late {
            0 => store.stands(at, duty, hold.epoch),
            _ => store.was_granted(at, duty, hold.epoch),
        };
        if !granted {
            return Some("R1");
        }
        if store.is_unheard(duty) {
            return Some("R17");
        }
        self.works.iter().any(|work| work.duty == duty).then_some("work")
    }
}
