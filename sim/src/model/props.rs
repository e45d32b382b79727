//! What must always hold, and what must be possible.

use stateright::Property;
use tenure_core::invariant::{self, Step};
use tenure_core::{Epoch, Version};

use super::member::{Mode, Work};
use super::{Grant, NOW, Setup, State, What, Without};

impl Setup {
    pub(super) fn rules(&self) -> Vec<Property<Self>> {
        let mut rules = vec![
            Property::always("L1", |_, state: &State| !state.broken.contains(&"L1")),
            Property::always("L2", |_, state: &State| !state.broken.contains(&"L2")),
            Property::always("L3", |_, state: &State| !state.broken.contains(&"L3")),
            Property::always("C1", |_, state: &State| !state.broken.contains(&"C1")),
        ];
        // Whom the store drops before its time believes in its hold until it hears of it.
        if !self.bounds.early {
            rules.push(Property::always("B1", |model: &Self, state| model.one_believes(state)));
        }
        // A short way does not lead everywhere.
        if self.bounds.depth == 0 {
            rules.extend(self.reached());
        }
        rules
    }

    /// What must be possible. It is counted, so that states that differ only in their past are one.
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
        if self.bounds.late > 0 {
            reached.push(Property::sometimes("an unknown claim is resolved", |model: &Self, _| {
                model.counted("unknown claims resolved") > 0
            }));
        }
        reached
    }

    /// Whether work may have effects by its own clock.
    pub(super) fn may_act(&self, work: &Work) -> bool {
        let told = work.mode == Mode::Cancelled;
        work.may_act() || self.without == Without::Deadline && !told
    }

    fn one_believes(&self, state: &State) -> bool {
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
        beliefs.len() < 2 || invariant::one_believes(&beliefs).is_ok()
    }

    /// Counts what happened, and judges it together with what is remembered of before: that is
    /// as much as each invariant asks for.
    pub(super) fn judge(&self, state: &mut State, happened: &[What]) {
        for what in happened {
            self.count(*what);
            let broken = invariant::check(&self.history(*what)).err().unwrap_or_default();
            state.broken.extend(broken.iter().map(|violation| violation.rule));
        }
    }

    fn history(&self, what: What) -> Vec<Step> {
        match what {
            What::Granted { duty, before, now } => {
                let grants = [before, now].into_iter().filter(|grant| grant.epoch > Epoch::ZERO);
                let granted = |Grant { epoch, to }| {
                    let instance = self.instances[to].clone();
                    Step::Granted { duty: self.key(duty), epoch, instance }
                };
                grants.map(granted).collect()
            }
            What::Committed { duty, newest, under } => {
                let steps = (1..).zip([newest, under]).flat_map(|(number, Grant { epoch, to })| {
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
