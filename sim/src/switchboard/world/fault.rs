//! Faults that strike at an instant.

use tenure_core::DutyKey;
use tenure_switchboard::storage::{Decision, Fences as _, Inbox as _, Registry as _};
use tenure_wire::ingest::InboxCursor;

use super::{SwitchEvent, SwitchReplica, SwitchWorld, connector};
use crate::switchboard::story::SwitchStep;
use crate::switchboard::{HOUR, MINUTE, Micros, SECOND, SwitchFault, SwitchScenario};

/// A copy of the database, and how far the observer had read.
#[derive(Clone, Debug)]
pub(super) struct DatabaseCopy {
    bytes: Vec<u8>,
    observed: InboxCursor,
}

/// Copies that are made; each takes some memory.
const MAX_COPIES: usize = 3;

fn decision() -> Decision {
    Decision { by: "sim".to_owned(), reason: String::new(), token_id: None }
}

impl SwitchWorld {
    pub(super) fn strike(&mut self) {
        if self.is_healed {
            return;
        }
        self.soon(self.scenario.fault_gap, SwitchEvent::Fault);
        let possible = [
            SwitchFault::ReplicaKill,
            SwitchFault::ClockForward,
            SwitchFault::ClockBack,
            SwitchFault::Sleep,
            SwitchFault::TokenRevoke,
            SwitchFault::FenceReset,
            SwitchFault::Restore,
            SwitchFault::ConnectorRestart,
            SwitchFault::ConnectorAway,
            SwitchFault::OldCounter,
            SwitchFault::Registry,
        ];
        let enabled: Vec<SwitchFault> =
            possible.into_iter().filter(|fault| self.scenario.has(*fault)).collect();
        let Some(fault) = self.rng.pick(&enabled) else { return };
        if self.happens(fault) {
            self.struck(fault);
        }
    }

    /// Returns whether anything happened.
    fn happens(&mut self, fault: SwitchFault) -> bool {
        match fault {
            SwitchFault::ReplicaKill => self.kill_replica(),
            SwitchFault::ClockForward => {
                let back = self.offset < 0 && self.rng.chance(500);
                let step = SwitchScenario::step(&mut self.rng);
                self.step_clock(if back { 0 } else { self.offset.max(0) + step });
            }
            SwitchFault::ClockBack => {
                let step = SwitchScenario::step(&mut self.rng);
                let offset = match self.rng.below(10) {
                    0..5 if self.offset > 0 => 0,
                    0 => MINUTE - self.unix(),
                    _ => self.offset - step,
                };
                self.step_clock(offset);
            }
            SwitchFault::Sleep => {
                let hours = self.rng.between(1, 40) as Micros * HOUR;
                let time = self.rng.between(1, hours as u64) as Micros;
                self.sleep(time);
            }
            SwitchFault::TokenRevoke => return self.revoke_token(),
            SwitchFault::FenceReset => self.reset_fence(),
            SwitchFault::Restore => return self.restore(),
            SwitchFault::ConnectorRestart => self.restart_connector(),
            SwitchFault::ConnectorAway => {
                let number = self.rng.below(self.connectors.len() as u64) as usize;
                self.connectors[number].away_until = self.now + self.scenario.heal / 4;
            }
            SwitchFault::OldCounter => self.take_over_statistics(),
            SwitchFault::Registry => return self.change_registry(),
            _ => return false,
        }
        true
    }

    fn kill_replica(&mut self) {
        let number = self.rng.below(self.replicas.len() as u64) as usize;
        self.stop_replica(number);
        self.replicas[number].is_alive = false;
        self.soon(self.scenario.gap * 2, SwitchEvent::Revive(number));
    }

    /// Ends the process of a replica: its memory is lost.
    fn stop_replica(&mut self, number: usize) {
        for waiting in std::mem::take(&mut self.replicas[number].waiting) {
            self.keep_for_later(&waiting);
        }
        self.replicas[number] =
            SwitchReplica { is_alive: self.replicas[number].is_alive, ..self.start_replica() };
    }

    /// Sets the store's clock, to 1970 at the earliest.
    fn step_clock(&mut self, offset: i64) {
        self.offset = offset.max(MINUTE - self.unix());
        self.set_wall();
        self.line("clock", || format!("of the store is now {} s ahead", offset / SECOND));
    }

    /// Everything stands still for a time, and all clocks go on.
    pub(super) fn sleep(&mut self, time: Micros) {
        let queue = std::mem::take(&mut self.queue);
        self.queue = queue.into_iter().map(|((at, n), event)| ((at + time, n), event)).collect();
        self.now += time;
        self.set_wall();
        self.line("clock", || format!("goes on: the machine slept {} s", time / SECOND));
    }

    fn reset_fence(&mut self) {
        let duty = self.rng.below(self.scenario.duties as u64) as usize;
        // The name is always valid.
        let name = DutyKey::new("sim", format!("d{duty}")).expect("a duty").to_string();
        let answer = self.runtime.block_on(self.storage.reset_fence(&name, None, &decision()));
        let forgotten = self.sound("reset_fence", answer).and_then(Result::ok);
        self.line("operator", || {
            format!("forgets {} fences of d{duty}", forgotten.map_or(0, |it| it.len()))
        });
        self.history.push(SwitchStep::FenceReset(duty));
    }

    pub(super) fn back_up(&mut self) {
        if self.is_healed
            || self.copies.len() >= MAX_COPIES
            || !self.scenario.has(SwitchFault::Restore)
        {
            return;
        }
        self.soon(self.scenario.heal / 4, SwitchEvent::Backup);
        let answer = self.runtime.block_on(self.storage.copy());
        let Some(bytes) = self.sound("copy", answer) else { return };
        let number = self.copies.len();
        self.line("operator", || format!("makes copy {number} of the database"));
        self.copies.push(DatabaseCopy { bytes, observed: self.observed });
        self.history.push(SwitchStep::BackedUp);
    }

    /// Stops all replicas, and replaces the database by a copy.
    fn restore(&mut self) -> bool {
        let number = self.rng.below(self.copies.len() as u64) as usize;
        let Some(copy) = self.copies.get(number).cloned() else { return false };
        (0..self.replicas.len()).for_each(|replica| self.stop_replica(replica));
        // These are requests that the store had received.
        self.queue
            .retain(|_, event| !matches!(event, SwitchEvent::Late(_) | SwitchEvent::SlowTick(..)));
        let answer = self.runtime.block_on(self.storage.restore(copy.bytes));
        self.sound("restore", answer);
        self.line("operator", || format!("restores copy {number}; all replicas stopped"));
        self.observed = copy.observed;
        self.newest = None;
        self.connectors.iter_mut().for_each(|it| it.received_at = None);
        self.history.push(SwitchStep::Restored(number));
        self.needs_adopting = true;
        if self.strikes(SwitchFault::LateAdopt, 500) {
            self.soon(self.scenario.gap * 3, SwitchEvent::Adopt);
        } else {
            self.adopt();
        }
        true
    }

    pub(super) fn adopt(&mut self) {
        if !std::mem::take(&mut self.needs_adopting) {
            return;
        }
        let answer = self.runtime.block_on(self.storage.adopt("sim"));
        let Some(floor) = self.sound("adopt", answer) else { return };
        self.reached("adopted");
        self.line("operator", || format!("adopts the inbox: it continues above {floor}"));
        self.history.push(SwitchStep::Adopted { wall: self.wall(), floor });
    }

    fn restart_connector(&mut self) {
        let number = self.rng.below(self.connectors.len() as u64) as usize;
        let is_same = self.rng.chance(300);
        self.instances += 1;
        let (process, now) = (self.instances, self.now);
        let it = &mut self.connectors[number];
        it.process = if is_same { it.process } else { process };
        (it.started, it.done) = (now, 0);
        let process = it.process;
        self.line(&format!("c{number}"), || format!("restarts as process {process}"));
    }

    /// An operator recounts, archives or deletes a connector.
    fn change_registry(&mut self) -> bool {
        let number = self.rng.below(self.connectors.len() as u64) as usize;
        let name = connector::key(number, self.connectors[number].source);
        let decision = decision();
        match self.rng.below(10) {
            0..6 => self.recount(number),
            6..9 => {
                let archived = self.rng.chance(700);
                let change = self.storage.archive(&name, archived, &decision);
                let answer = self.runtime.block_on(change);
                let changed = self.sound("archive", answer).and_then(Result::ok).flatten();
                self.line("operator", || {
                    let what = if archived { "archives" } else { "unarchives" };
                    format!("{what} c{number}: changed {changed:?}")
                });
                if changed != Some(true) {
                    return false;
                }
                self.history.push(SwitchStep::Archived(number, archived));
            }
            _ => {
                let answer = self.runtime.block_on(self.storage.delete(&name, &decision));
                let deleted = self.sound("delete", answer) == Some(Ok(true));
                self.line("operator", || format!("deletes c{number}: changed {deleted}"));
                if !deleted {
                    return false;
                }
                self.connectors[number].received_at = None;
                self.history.push(SwitchStep::ConnectorDeleted(number));
            }
        }
        true
    }

    pub(super) fn recount(&mut self, number: usize) {
        let name = connector::key(number, self.connectors[number].source);
        let answer = self.runtime.block_on(self.storage.recount(&name, &decision()));
        let since = self.sound("recount", answer).and_then(Result::ok).flatten();
        self.line("operator", || format!("recounts c{number}: since {since:?}"));
        if since.is_some() {
            self.reached("recounted");
            self.read_series(number);
        }
    }
}
