//! Faults of the stores that live in the process.

use std::fmt;

use tenure_core::{DutyKey, Epoch, GroupName, Hold, LocalInstant, Session, Ttl, Version};

use crate::Memory;
#[cfg(feature = "file")]
use crate::file::FileStore;
use crate::state::StoreState;

/// State of a store in memory at one moment.
#[derive(Clone, Default)]
pub struct Snapshot(StoreState);

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshot")
    }
}

impl Memory {
    /// Copies the current state.
    pub fn snapshot(&self) -> Snapshot {
        self.0.step(|state, _| Snapshot(state.clone()))
    }

    /// Makes it what it was: everything since is forgotten, as in a failover to a replica that was
    /// behind. No epoch up to `floor` is granted from now on.
    pub fn restore(&self, snapshot: Snapshot, floor: Epoch) {
        self.0.step(|state, _| {
            *state = snapshot.0;
            state.floor = state.floor.max(floor);
        });
    }

    /// Gives every live session of a group a whole TTL, as a new leader of etcd does.
    pub fn extend(&self, group: &GroupName, ttl: Ttl) {
        self.0.step(|state, now| {
            for row in state.group(group).sessions.values_mut().filter(|row| now < row.expires) {
                row.expires = row.expires.max(now.plus(ttl.get()));
            }
        });
    }

    /// Ends the TTL of a session.
    pub fn lapse(&self, session: &Session) {
        self.0.step(|state, now| state.lapse(session, now));
    }

    /// Until when a hold stands if nobody extends it; `None` when it does not.
    pub fn ends_at(&self, hold: &Hold) -> Option<LocalInstant> {
        self.0.step(|state, now| {
            let group = state.group(&hold.duty.group);
            let stands = group.stands(hold, now);
            group.sessions.get(&hold.instance).filter(|_| stands).map(|row| row.expires)
        })
    }

    /// Puts an older checkpoint of a duty in the place of its newest, as anybody with write access
    /// could.
    pub fn put_back(&self, duty: &DutyKey, version: Version) {
        self.0.step(|state, _| {
            let Some(ring) = state.group(&duty.group).checkpoints.get_mut(&duty.id) else { return };
            let old = ring.iter().position(|old| old.version == version);
            if let Some(old) = old.and_then(|at| ring.remove(at)) {
                ring.push_front(old);
            }
        });
    }

    /// Forgets who held a duty.
    pub fn lose_epoch(&self, duty: &DutyKey) {
        self.0.step(|state, _| state.lose_epoch(duty));
    }
}

#[cfg(feature = "file")]
impl FileStore {
    /// Ends the TTL of a session.
    pub fn lapse(&self, session: &Session) {
        self.live.step(|state, now| state.lapse(session, now));
    }

    /// Forgets who held a duty.
    pub fn lose_epoch(&self, duty: &DutyKey) {
        self.live.step(|state, _| state.lose_epoch(duty));
    }
}

impl StoreState {
    fn lapse(&mut self, session: &Session, now: LocalInstant) {
        if let Some(row) = self.group(&session.group).sessions.get_mut(&session.instance) {
            row.expires = row.expires.min(now);
        }
    }

    fn lose_epoch(&mut self, duty: &DutyKey) {
        self.group(&duty.group).holds.remove(&duty.id);
    }
}
