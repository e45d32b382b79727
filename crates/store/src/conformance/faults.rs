//! Faults of the in-process stores.

use std::fmt;

use tenure_core::{DutyKey, Epoch, GroupName, Hold, LocalInstant, Session, Ttl, Version};

use crate::Memory;
#[cfg(feature = "file")]
use crate::file::FileStore;
use crate::state::StoreState;

/// State of a memory store at one moment.
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

    /// Restores a snapshot: all later changes are lost, as in a failover to a lagging replica. No
    /// epoch up to `floor` is granted from now on.
    pub fn restore(&self, snapshot: Snapshot, floor: Epoch) {
        self.0.step(|state, _| {
            *state = snapshot.0;
            state.floor = state.floor.max(floor);
        });
    }

    /// Extends every live session of a group by a whole TTL, as a new etcd leader does.
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

    /// Returns the time at which a hold ends unless it is extended; `None` if it is not valid.
    pub fn ends_at(&self, hold: &Hold) -> Option<LocalInstant> {
        self.0.step(|state, now| {
            let group = state.group(&hold.duty.group);
            let stands = group.stands(hold, now);
            group.sessions.get(&hold.instance).filter(|_| stands).map(|row| row.expires)
        })
    }

    /// Replaces the newest checkpoint of a duty with an older one, as anybody with write access
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

    /// Deletes the record of a duty's holder and epoch.
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

    /// Deletes the record of a duty's holder and epoch.
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
