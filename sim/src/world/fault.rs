//! Faults: their schedule and effects.

use tenure_core::DutyId;
use tenure_core::engine::{DrainMode, EngineEvent, GroupConfig};
use tenure_core::store::Evict;

use super::process::ProcessState;
use super::{Pid, ScheduledItem, SimWorld};
use crate::Nanos;
use crate::link::NetworkPartition;
use crate::scenario::{Fault, Scenario};

impl SimWorld {
    /// Draws the times of the faults of this seed.
    pub(super) fn plan_blows(&mut self) {
        let faults: Vec<Fault> = self.scenario.faults.iter().copied().collect();
        for fault in faults {
            if fault.is_ambient() {
                // Clock rates apply from the start; the other faults are counted when they happen.
                if matches!(fault, Fault::ClockRate | Fault::ClockBeyond) {
                    self.coverage.count("fault", fault.as_str());
                }
                continue;
            }
            for _ in 0..self.rng.between(1, 4) {
                let at = self.rng.below(self.scenario.quiet_from);
                self.at(at, ScheduledItem::Blow(fault));
            }
        }
    }

    /// Executes a fault.
    pub(super) fn blow(&mut self, fault: Fault) {
        if self.quiet {
            return;
        }
        self.coverage.count("fault", fault.as_str());
        match fault {
            Fault::StoreRestart | Fault::StoreAway => self.lose_store(fault),
            Fault::Storm => self.storm(),
            Fault::StoreAdopt => self.adopt(),
            Fault::TtlChange => self.change_ttl(),
            Fault::DutiesChange => self.change_duties(),
            Fault::DutiesPause => self.pause_duty(),
            Fault::Operator => {
                self.operate();
                self.hint_all();
            }
            _ => {
                let running: Vec<Pid> = self.slots.iter().flatten().copied().collect();
                if let Some(pid) = self.rng.pick(&running) {
                    self.strike(fault, pid);
                }
            }
        }
    }

    fn strike(&mut self, fault: Fault, pid: Pid) {
        self.say(pid, || format!("! {}", fault.as_str()));
        let (slot, ttl) = (self.processes[pid].slot, self.scenario.ttl_ns());
        let long = self.rng.below(10 * ttl) >> self.rng.below(6);
        match fault {
            Fault::Pause | Fault::Suspend => self.pause(pid, fault == Fault::Suspend, long),
            Fault::Kill => self.kill(pid, 2 * ttl + long),
            Fault::Restart => self.kill(pid, ttl / 20),
            Fault::PartitionBoth => self.cut(slot, (true, true, false), long),
            Fault::PartitionRequests => self.cut(slot, (true, false, false), long),
            Fault::PartitionReplies => self.cut(slot, (false, true, false), long),
            Fault::PartitionFlapping => self.cut(slot, (true, true, true), long),
            Fault::Deaf => {
                self.link.listen(slot, false);
                self.after(long, ScheduledItem::Heal(slot));
            }
            Fault::EarlyRevoke => {
                if let Some(session) = self.processes[pid].session.clone() {
                    self.excuse(pid);
                    self.backend.revoke(&session);
                }
            }
            Fault::Leave => self.tell_to_go(pid, EngineEvent::Leave),
            Fault::Drain => self.tell_to_go(pid, EngineEvent::Drain),
            Fault::Evict => {
                let when = if self.rng.chance(500) { Evict::Now } else { Evict::AtTtl };
                if when == Evict::Now {
                    self.excuse(pid);
                }
                let id = self.processes[pid].id.clone();
                self.backend.evict(&id, when);
                self.processes[pid].evicted = true;
            }
            _ => {}
        }
    }

    fn pause(&mut self, pid: Pid, asleep: bool, long: Nanos) {
        if self.processes[pid].life == ProcessState::Runs {
            self.processes[pid].life = ProcessState::Paused { asleep };
            self.after(long, ScheduledItem::Resume(pid));
        }
    }

    /// Resumes a paused process: messages that waited for it arrive at once, in any order.
    pub(super) fn resume(&mut self, pid: Pid) {
        if !matches!(self.processes[pid].life, ProcessState::Paused { .. }) {
            return;
        }
        self.processes[pid].life = ProcessState::Runs;
        self.say(pid, || "! resumes".to_owned());
        self.sleep_through_reset(pid);
        self.watch_wake(pid);
        for item in std::mem::take(&mut self.processes[pid].backlog) {
            let after = self.rng.below(2_000_000);
            if let ScheduledItem::Tick(_) = item {
                self.processes[pid].tick_at = Some(self.now + after);
            }
            self.after(after, item);
        }
        // It may have missed hints.
        self.hint(pid);
    }

    fn kill(&mut self, pid: Pid, back_after: Nanos) {
        let slot = self.processes[pid].slot;
        self.gone(pid);
        self.after(back_after, ScheduledItem::Start(slot));
    }

    fn cut(&mut self, slot: usize, (requests, replies, flapping): (bool, bool, bool), long: Nanos) {
        self.link.set(slot, NetworkPartition { requests, replies, flapping });
        self.after(long, ScheduledItem::Heal(slot));
    }

    fn tell_to_go(&mut self, pid: Pid, event: EngineEvent) {
        // A paused process cannot receive the request.
        if self.processes[pid].life == ProcessState::Runs {
            self.processes[pid].leaves = true;
            self.step(pid, event);
        }
    }

    fn lose_store(&mut self, fault: Fault) {
        let ttl = self.scenario.ttl_ns();
        let long = match fault {
            Fault::StoreAway => self.rng.below(4 * ttl) >> self.rng.below(4),
            _ => self.rng.below(ttl / 4),
        };
        self.trace.line(self.now, "store", || format!("! {}", fault.as_str()));
        self.backend.go_away(self.now + long);
        if fault == Fault::StoreRestart {
            let live = self.backend.members();
            let (what, ends) = self.backend.restart(self.now, &mut self.rng);
            self.trace.line(self.now, "store", || format!("! restarts: {what}"));
            if ends {
                self.forget_sessions(&live);
            }
            self.excuse_no_longer();
        }
        self.after(long, ScheduledItem::StoreBack);
    }

    /// Has an operator adopt the store, often while a member with the longer TTL cannot learn of it
    /// for a while.
    fn adopt(&mut self) {
        let running = self.slots.iter().flatten().copied();
        let long = |pid: &Pid| self.processes[*pid].ttl == self.scenario.ttl;
        let long: Vec<Pid> = running.filter(long).collect();
        if self.rng.chance(700)
            && let Some(pid) = self.rng.pick(&long)
        {
            let fault = if self.rng.chance(500) { Fault::Pause } else { Fault::PartitionBoth };
            self.strike(fault, pid);
        }
        let live = self.backend.members();
        let what = self.backend.adopt(self.now, &mut self.rng);
        self.trace.line(self.now, "store", || format!("! is adopted: {what}"));
        self.forget_sessions(&live);
        // The others learn of it by a look, or by their next keep-alive.
        if self.rng.chance(500) {
            self.hint_all();
        }
    }

    pub(super) fn store_back(&mut self) {
        if !self.backend.is_up(self.now) {
            return;
        }
        self.trace.line(self.now, "store", || "is reachable".to_owned());
        // Watches were disconnected: every process gets one hint.
        let running: Vec<Pid> = self.slots.iter().flatten().copied().collect();
        running.into_iter().for_each(|pid| self.hint(pid));
    }

    fn storm(&mut self) {
        for _ in 0..self.rng.between(2, 6) {
            let (fault, after) = (
                self.rng.pick(&[Fault::Kill, Fault::Restart, Fault::Leave, Fault::Drain]),
                self.rng.below(self.scenario.ttl_ns()),
            );
            if let Some(fault) = fault {
                self.after(after, ScheduledItem::Blow(fault));
            }
        }
        for slot in 0..self.scenario.slots {
            if self.slots[slot].is_none() {
                self.start(slot);
            }
        }
    }

    /// Begins a rolling restart with the other TTL.
    fn change_ttl(&mut self) {
        self.shorter = !self.shorter;
        let shorter = self.shorter;
        self.trace.line(self.now, "world", || format!("! the shorter TTL is given: {shorter}"));
        for _ in 0..self.scenario.slots {
            let fault = self.rng.pick(&[Fault::Kill, Fault::Restart, Fault::Leave]);
            let after = self.rng.below(4 * self.scenario.ttl_ns());
            fault.into_iter().for_each(|fault| self.after(after, ScheduledItem::Blow(fault)));
        }
    }

    fn change_duties(&mut self) {
        for _ in 0..self.rng.between(1, 3) {
            let known: Vec<_> = self.listed.keys().cloned().collect();
            if self.rng.chance(500) {
                if let Some(duty) = self.rng.pick(&known) {
                    self.listed.remove(&duty);
                }
            } else if known.len() < 16 {
                // Sometimes a duty that was listed before.
                let number = self.rng.below(self.named as u64 + 1) as usize;
                self.named = self.named.max(number + 1);
                self.listed.entry(Scenario::duty(number)).or_insert(false);
            }
        }
        self.show_duties();
    }

    fn pause_duty(&mut self) {
        let known: Vec<_> = self.listed.keys().cloned().collect();
        if let Some(duty) = self.rng.pick(&known)
            && let Some(paused) = self.listed.get_mut(&duty)
        {
            *paused = !*paused;
        }
        self.show_duties();
    }

    /// Lets an operator pin or pause a duty, drain, cordon or weigh a member, pause everything, or
    /// undo one of these.
    pub(super) fn operate(&mut self) {
        let mut group = self.backend.group();
        let known: Vec<_> = self.listed.keys().cloned().collect();
        let running: Vec<Pid> = self.slots.iter().flatten().copied().collect();
        let what = match self.rng.below(20) {
            0..7 => self.rng.pick(&known).map(|duty| self.pin(&mut group, duty)),
            7..11 => self.rng.pick(&known).map(|duty| {
                if !group.paused.remove(&duty) {
                    group.paused.insert(duty);
                }
                "pause"
            }),
            11..19 => self.rng.pick(&running).map(|pid| self.weigh(&mut group, pid)),
            _ => {
                group.all_paused = !group.all_paused;
                Some("pause-all")
            }
        };
        let Some(what) = what else { return };
        self.coverage.count("operator", what);
        self.backend.set_group(&group);
        self.trace.line(self.now, "world", || format!("! {group:?}"));
    }

    fn pin(&mut self, group: &mut GroupConfig, duty: DutyId) -> &'static str {
        match group.pins.remove(&duty) {
            Some(_) if self.rng.chance(500) => {}
            _ => drop(group.pins.insert(duty, self.scenario.pin(&mut self.rng))),
        }
        "pin"
    }

    /// Drains, cordons or weighs a member, or undoes an order for it.
    fn weigh(&mut self, group: &mut GroupConfig, pid: Pid) -> &'static str {
        let id = self.processes[pid].id.clone();
        if group.drained.remove(&id).is_some() {
            return "drain";
        }
        if group.weights.remove(&id).is_some() {
            return "weight";
        }
        if group.cordoned.remove(&id) {
            return "cordon";
        }
        match self.rng.below(6) {
            0 => drop(group.drained.insert(id, DrainMode::Anyway)),
            1 | 2 => drop(group.drained.insert(id, DrainMode::HandOver)),
            3 => {
                group.cordoned.insert(id);
                return "cordon";
            }
            _ => {
                group.weights.insert(id, self.rng.below(4) as u32);
                return "weight";
            }
        }
        "drain"
    }

    /// Has operators undo what keeps all members from taking duties.
    fn relent(&mut self) {
        let mut group = self.backend.group();
        group.all_paused = group.all_paused && self.rng.chance(200);
        let takes = |pid: &Pid| {
            let process = &self.processes[*pid];
            let stays = !process.leaves && !process.evicted;
            let weight = group.weights.get(&process.id).copied();
            let barred = group.drained.contains_key(&process.id) || weight == Some(0);
            stays && !barred && !group.cordoned.contains(&process.id)
        };
        if !self.slots.iter().flatten().any(takes) {
            group.drained.clear();
            group.cordoned.clear();
            group.weights.clear();
        }
        if group != self.backend.group() {
            self.backend.set_group(&group);
            self.hint_all();
        }
    }

    fn show_duties(&mut self) {
        let listed = &self.listed;
        self.trace.line(self.now, "world", || {
            let word = |(duty, paused): (_, &bool)| {
                format!("{duty}{}", if *paused { "(paused)" } else { "" })
            };
            let words: Vec<String> = listed.iter().map(word).collect();
            format!("! duties {}", words.join(" "))
        });
    }

    /// Ends all faults: everything heals, and paused processes continue.
    pub(super) fn calm(&mut self) {
        self.quiet = true;
        self.trace.line(self.now, "world", || "! faults end".to_owned());
        self.backend.come_back(self.now);
        self.store_back();
        for slot in 0..self.slots.len() {
            if self.link.is_cut(slot) {
                self.heal(slot);
            }
        }
        for pid in 0..self.processes.len() {
            self.resume(pid);
        }
        self.start_some();
        self.relent();
        let running: Vec<Pid> = self.slots.iter().flatten().copied().collect();
        running.into_iter().for_each(|pid| self.list_all(pid));
    }

    /// Starts some of the dead processes again.
    fn start_some(&mut self) {
        for slot in 0..self.scenario.slots {
            if self.slots[slot].is_none() && self.rng.chance(500) {
                self.start(slot);
            }
        }
        let stays = |pid: &Pid| !self.processes[*pid].leaves && !self.processes[*pid].evicted;
        if !self.slots.iter().flatten().any(stays) {
            self.start(self.scenario.slots);
        }
    }
}
