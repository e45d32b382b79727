//! The holds of a membership, and the guards that were made of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_core::engine::WorkOutcome;
use tenure_core::{Clock, Deadline, DutyId, Epoch, GroupName, Hold, LocalInstant, Session, Ttl};

use crate::guard::Guard;
use crate::hold_state::{DriverCommand, DriverHandle, HoldState};
use crate::membership::{EventQueue, MembershipEvent};
use crate::observe::HeldDuty;

/// Which hold: a duty may be granted again while the work of the last grant still comes to its end.
pub(crate) type HoldKey = (DutyId, Epoch);

/// Every hold whose work has not stopped.
pub(crate) struct Holds {
    pub(crate) group: GroupName,
    pub(crate) ttl: Ttl,
    /// Shortest interval between progress reports; `None` when progress is not required.
    pub(crate) progress: Option<std::time::Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) desk: DriverHandle,
    pub(crate) inbox: Arc<EventQueue>,
    pub(crate) tenancies: BTreeMap<HoldKey, Arc<HoldState>>,
    pub(crate) changed: bool,
}

impl Holds {
    pub(crate) fn assign(&mut self, hold: Hold, deadline: LocalInstant) {
        let session = Session {
            group: hold.duty.group.clone(),
            instance: hold.instance.clone(),
            nonce: hold.nonce,
            ttl: self.ttl,
        };
        let key = (hold.duty.id.clone(), hold.epoch);
        let clock = Arc::clone(&self.clock);
        let tenancy = Arc::new(HoldState::new(hold, session, deadline, clock, self.progress));
        self.tenancies.insert(key, Arc::clone(&tenancy));
        self.changed = true;
        self.inbox.push(MembershipEvent::Assigned(Guard::new(tenancy, self.desk.clone())));
    }

    pub(crate) fn extend(&self, key: &HoldKey, deadline: Deadline) {
        if let Some(tenancy) = self.tenancies.get(key) {
            tenancy.extend(deadline);
        }
    }

    pub(crate) fn suspend(&self) {
        self.tenancies.values().for_each(|tenancy| tenancy.suspend());
    }

    /// Asks the work to come to its end.
    pub(crate) fn drain(&mut self, key: &HoldKey, why: &'static str) {
        let Some(tenancy) = self.tenancies.get(key) else { return };
        tenancy.drain();
        if tenancy.is_taken() {
            let hold = tenancy.hold.clone();
            self.inbox.push(MembershipEvent::Stopping { hold, why });
        } else {
            self.revoke(key, why);
        }
    }

    /// Ends the hold at once. What user code has not seen yet has stopped by that.
    pub(crate) fn revoke(&mut self, key: &HoldKey, why: &'static str) {
        let Some(tenancy) = self.tenancies.get(key) else { return };
        tenancy.lose();
        self.changed = true;
        if tenancy.is_taken() {
            let hold = tenancy.hold.clone();
            self.inbox.push(MembershipEvent::Revoked { hold, why });
        } else {
            let (duty, epoch) = key.clone();
            // To ourselves: the receiver lives as long as this does.
            let _ = self.desk.commands.send(DriverCommand::Stopped {
                duty,
                epoch,
                how: WorkOutcome::Asked,
            });
        }
    }

    /// The work has stopped; `false` when that was known.
    pub(crate) fn stopped(&mut self, key: &HoldKey) -> bool {
        let known = self.tenancies.remove(key).is_some();
        self.changed |= known;
        known
    }

    /// The deadline that comes first.
    pub(crate) fn first_deadline(&self) -> Option<LocalInstant> {
        let held = self.tenancies.values().filter(|tenancy| !tenancy.is_lost());
        held.map(|tenancy| tenancy.deadline()).min()
    }

    /// Reports the held duties to the observer if they have changed.
    pub(crate) fn report(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let held = self.tenancies.iter().filter(|(_, tenancy)| !tenancy.is_lost());
        let now = |(duty, epoch): &HoldKey| HeldDuty { duty: duty.clone(), epoch: *epoch };
        let holds: Vec<_> = held.map(|(key, _)| now(key)).collect();
        self.desk.observer.holding(&self.group, &holds);
    }

    /// Nobody renews any more.
    pub(crate) fn end(&mut self) {
        self.tenancies.values().for_each(|tenancy| {
            tenancy.lose();
        });
        self.changed = true;
        self.report();
    }
}
