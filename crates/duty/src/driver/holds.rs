//! Holds of a membership, and their guards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::{EngineEvent, WorkOutcome};
use tenure_core::{
    Clock, Deadline, DutyId, Epoch, GroupName, Hold, LocalInstant, Record, Session, Ttl,
};

use crate::guard::Guard;
use crate::hold_state::{DriverHandle, HoldState};
use crate::membership::{EventQueue, MembershipEvent};
use crate::observe::HeldDuty;
use crate::process;

/// Key of a hold. A duty may be granted again while the work of the previous grant is still ending.
pub(crate) type HoldKey = (DutyId, Epoch);

/// Every hold whose work has not stopped.
pub(crate) struct Holds {
    pub(crate) group: GroupName,
    ttl: Ttl,
    /// Shortest interval between progress reports; `None` when progress is not required.
    progress: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) handle: DriverHandle,
    pub(crate) events: Arc<EventQueue>,
    states: BTreeMap<HoldKey, Arc<HoldState>>,
    changed: bool,
}

impl Holds {
    pub(crate) fn new(
        group: GroupName,
        ttl: Ttl,
        progress: Option<Duration>,
        clock: Arc<dyn Clock>,
        handle: DriverHandle,
        events: Arc<EventQueue>,
    ) -> Self {
        let states = BTreeMap::new();
        Self { group, ttl, progress, clock, handle, events, states, changed: false }
    }

    pub(crate) fn assign(&mut self, hold: Hold, deadline: LocalInstant) {
        let session = Session {
            group: hold.duty.group.clone(),
            instance: hold.instance.clone(),
            nonce: hold.nonce,
            ttl: self.ttl,
        };
        let key = (hold.duty.id.clone(), hold.epoch);
        let clock = Arc::clone(&self.clock);
        let state = Arc::new(HoldState::new(hold, session, deadline, clock, self.progress));
        self.states.insert(key, Arc::clone(&state));
        self.changed = true;
        self.events.push(MembershipEvent::Assigned(Guard::new(state, self.handle.clone())));
    }

    pub(crate) fn extend(&self, key: &HoldKey, deadline: Deadline) {
        if let Some(state) = self.states.get(key) {
            state.extend(deadline);
        }
    }

    pub(crate) fn suspend(&self) {
        self.states.values().for_each(|state| state.suspend());
    }

    pub(crate) fn drain(&mut self, key: &HoldKey, why: &'static str) {
        let Some(state) = self.states.get(key) else { return };
        state.drain();
        if state.is_taken() {
            let hold = state.hold.clone();
            self.events.push(MembershipEvent::Stopping { hold, why });
        } else {
            self.revoke(key, why);
        }
    }

    pub(crate) fn drain_all(&mut self, why: &'static str) {
        let keys: Vec<_> = self.states.keys().cloned().collect();
        keys.iter().for_each(|key| self.drain(key, why));
    }

    /// Ends the hold at once. If user code has not taken its guard, its work counts as stopped.
    pub(crate) fn revoke(&mut self, key: &HoldKey, why: &'static str) {
        let Some(state) = self.states.get(key) else { return };
        state.lose();
        self.changed = true;
        if state.is_taken() {
            let hold = state.hold.clone();
            self.events.push(MembershipEvent::Revoked { hold, why });
        } else {
            let ((duty, epoch), how) = (key.clone(), WorkOutcome::Asked);
            self.handle.send(EngineEvent::Stopped { duty, epoch, how });
        }
    }

    /// Removes a hold whose work has stopped; `false` if it was removed before.
    pub(crate) fn stopped(&mut self, key: &HoldKey) -> bool {
        let known = self.states.remove(key).is_some();
        self.changed |= known;
        known
    }

    fn held(&self) -> impl Iterator<Item = (&HoldKey, &Arc<HoldState>)> {
        self.states.iter().filter(|(_, state)| !state.is_lost())
    }

    pub(crate) fn first_deadline(&self) -> Option<LocalInstant> {
        self.held().map(|(_, state)| state.deadline()).min()
    }

    /// Reports the held duties to the observer if they have changed.
    pub(crate) fn report(&mut self) {
        if std::mem::take(&mut self.changed) {
            let held =
                |((duty, epoch), _): (&HoldKey, _)| HeldDuty { duty: duty.clone(), epoch: *epoch };
            let holds: Vec<_> = self.held().map(held).collect();
            self.handle.observer.holding(&self.group, &holds);
        }
    }

    pub(crate) fn record(&self, record: &Record) {
        self.handle.observer.recorded(&self.group, record, process::unix_ms());
    }

    /// Ends all holds, because nothing renews them any more.
    pub(crate) fn end(&mut self) {
        for state in self.states.values() {
            state.lose();
        }
        self.changed = true;
        self.report();
    }
}
