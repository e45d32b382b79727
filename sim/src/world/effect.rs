//! Execution of engine effects, and the resulting beliefs of processes.

use std::time::Duration;

use tenure_core::engine::{Effect, EngineExit, GroupConfig, GroupView, StopReason};
use tenure_core::invariant::Step;
use tenure_core::roster::{Pin, RosterDuty, RosterMember, plan};
use tenure_core::store::Member;
use tenure_core::{Change, Code, Deadline, DutyId, Epoch, Hold, InstanceId, Record};

use super::process::{Process, ProcessState};
use super::{Pid, ScheduledItem, Shed, SimWorld, describe};
use crate::Nanos;
use crate::check::{self, DutyMove, Final, Outlived, Promise, WorkTurn};
use crate::worker::{SimWork, WorkMode};

impl SimWorld {
    /// Executes an effect.
    pub(super) fn execute(&mut self, pid: Pid, effect: Effect) {
        let local = self.local(pid);
        self.say(pid, || format!("> {}", describe::effect(&effect, local)));
        if self.processes[pid].life == ProcessState::Gone {
            let id = self.processes[pid].id.clone();
            return self
                .broken("end", format!("{id} requests an effect after its end: {effect:?}"));
        }
        match effect {
            Effect::Ask { ticket, request, within } => {
                let within = self.lasts(pid, within);
                self.ask(pid, ticket, request, within);
            }
            Effect::Assign { hold, deadline } => self.assign(pid, hold, deadline),
            Effect::Extend { duty, epoch, deadline } => self.extend(pid, &duty, epoch, deadline),
            Effect::Suspend => {
                for (duty, epoch) in self.works(pid) {
                    self.doubt(pid, &duty, epoch);
                    if let Some(work) = self.processes[pid].work_of(&duty, epoch) {
                        work.suspended = true;
                    }
                }
            }
            Effect::Drain { duty, epoch, why, .. } => self.drain(pid, &duty, epoch, why),
            Effect::Revoke { duty, epoch, why } => self.revoke(pid, &duty, epoch, why),
            Effect::Record(record) => {
                self.coverage.count("record", record.change.as_str());
                self.note(pid, record);
            }
            Effect::Refuse(problem) => {
                self.coverage.count("refused", problem.code.as_str());
                // The request was refused, so the process stays.
                self.processes[pid].leaves = false;
            }
            Effect::End(end) => self.ended(pid, &end),
        }
    }

    /// Keeps the records about the start and the end of a hold.
    fn note(&mut self, pid: Pid, record: Record) {
        use Change::{Acquired, Expired, Released, Revoked, TakenOver};
        let (change, instance) = (record.change, record.instance);
        let (Some(duty), Some(epoch)) = (record.duty, record.epoch) else { return };
        if change == Acquired {
            self.processes[pid].acquired.insert(duty.clone(), record.reason.to_string());
        }
        if matches!(change, Acquired | TakenOver | Released | Revoked | Expired) {
            let at = self.now;
            self.story.notes.push(check::RecordNote { at, instance, duty, epoch, change });
        }
    }

    fn assign(&mut self, pid: Pid, hold: Hold, deadline: Deadline) {
        let (duty, epoch) = (hold.duty.id.clone(), hold.epoch);
        self.turn(pid, &duty, epoch, "assigned", "");
        let runs = self.processes[pid].work.keys().find(|key| key.0 == duty).cloned();
        if let Some((_, older)) = runs {
            let id = self.processes[pid].id.clone();
            let what = format!("{id} starts {duty} while its work under epoch {older} runs");
            return self.broken("work", what);
        }
        let mut work = SimWork::new(hold, deadline, self.now);
        work.moved_among = self.saw_it_shed(pid, &duty);
        self.promise(pid, &work);
        self.processes[pid].work.insert((duty.clone(), epoch), work);
        self.believe(pid, &duty, epoch);
        self.after(0, ScheduledItem::Work(pid, duty, epoch, 0));
    }

    /// Returns the members when the duty was shed, if this process knows that a present member shed
    /// it. It cannot know if it joined later, the other has left, or it never saw the duty held.
    fn saw_it_shed(&mut self, pid: Pid, duty: &DutyId) -> Option<Vec<InstanceId>> {
        let Shed { at, by, members } = self.shed.remove(duty)?;
        let id = &self.processes[by].id;
        let stays = !self.processes[by].leaves
            && self.backend.members().iter().any(|member| member.instance == *id);
        let process = &mut self.processes[pid];
        let saw = process.acquired.remove(duty).is_some_and(|why| why != "free");
        (stays && saw && process.since < at).then_some(members)
    }

    fn extend(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch, deadline: Deadline) {
        let (now, heard) = (self.local(pid), self.processes[pid].heard);
        let Some(work) = self.processes[pid].work_of(duty, epoch) else {
            return;
        };
        if !work.deadline.allows(now) {
            self.doubt(pid, duty, epoch);
        }
        if let Some(work) = self.processes[pid].work_of(duty, epoch) {
            work.deadline = deadline;
            work.suspended = false;
            work.confirmed = heard;
            let work = work.clone();
            self.promise(pid, &work);
        }
        self.believe(pid, duty, epoch);
    }

    /// Keeps a deadline that was given to work, with the end of the hold in the store at this time:
    /// the store confirms before any process learns of it.
    fn promise(&mut self, pid: Pid, SimWork { hold, deadline, .. }: &SimWork) {
        let broken = self.excused.contains(&hold.nonce) || self.forgotten.contains_key(&hold.nonce);
        if broken || self.scenario.is_lossy() {
            return;
        }
        let believes = self.processes[pid].clock.virtually(deadline.at());
        let (at, stands) = (self.now, self.backend.ends_at(hold));
        let (instance, duty, epoch) = (hold.instance.clone(), hold.duty.id.clone(), hold.epoch);
        self.story.promises.push(Promise { at, instance, duty, epoch, believes, stands });
    }

    fn drain(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch, why: StopReason) {
        self.coverage.count("drain", why.as_str());
        self.turn(pid, duty, epoch, "drain", why.as_str());
        self.watch_move(pid, duty, why);
        let (held, quota) = (self.held(pid), self.quota(pid));
        let voluntary =
            DutyMove::is_voluntary(why) || why == StopReason::Pin && !self.is_pinned_out(pid, duty);
        let Some(work) = self.processes[pid].work_of(duty, epoch) else {
            return;
        };
        if work.mode != WorkMode::Runs {
            return;
        }
        work.mode = WorkMode::Drains;
        let (since, moved_among) = (work.since, work.moved_among.take());
        if voluntary {
            let (at, instance) = (self.now, self.processes[pid].id.clone());
            let members: Vec<_> = self.seen_by(pid).map(|member| member.instance.clone()).collect();
            // A move caused by a join is not held back.
            let was_moved =
                moved_among.is_some_and(|then| members.iter().all(|id| then.contains(id)));
            self.shed.insert(duty.clone(), Shed { at, by: pid, members });
            let duty = duty.clone();
            self.story.moves.push(DutyMove {
                at,
                instance,
                duty,
                held,
                quota,
                since,
                was_moved,
                why,
            });
        }
        self.stop_later(pid, duty, epoch, false);
    }

    fn revoke(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch, why: StopReason) {
        self.coverage.count("revoke", why.as_str());
        self.turn(pid, duty, epoch, "revoked", why.as_str());
        self.watch_cancel(pid, duty, epoch, why);
        self.doubt(pid, duty, epoch);
        let Some(work) = self.processes[pid].work_of(duty, epoch) else {
            return;
        };
        if work.mode != WorkMode::Revoked {
            work.mode = WorkMode::Revoked;
            if why == StopReason::NoProgress {
                self.rests(pid, duty);
            }
            self.stop_later(pid, duty, epoch, true);
        }
    }

    fn ended(&mut self, pid: Pid, end: &EngineExit) {
        let id = self.processes[pid].id.clone();
        let works = self.processes[pid].work.iter();
        // Cancelled work may still be stopping.
        let mut running = works.filter(|(_, work)| work.mode != WorkMode::Revoked);
        if let Some(((duty, _), _)) = running.next() {
            let what = format!("{id} ended while work on {duty} runs");
            self.broken("end", what);
        }
        match end {
            EngineExit::Left => self.coverage.count("end", "left"),
            EngineExit::Failed(problem) => {
                self.coverage.count("end", problem.code.as_str());
                if problem.code != Code::EvictedInstance {
                    self.broken("end", format!("{id} gave up: {problem}"));
                }
            }
        }
        self.gone(pid);
        // It is started again.
        let (slot, ttl) = (self.processes[pid].slot, self.scenario.ttl_ns());
        let after = self.rng.below(3 * ttl);
        if !self.quiet {
            self.after(after, ScheduledItem::Start(slot));
        }
    }

    /// Removes the process.
    pub(super) fn gone(&mut self, pid: Pid) {
        for (duty, epoch) in self.works(pid) {
            self.doubt(pid, &duty, epoch);
        }
        let process = &mut self.processes[pid];
        process.life = ProcessState::Gone;
        process.work.clear();
        process.backlog.clear();
        self.slots[process.slot] = None;
    }

    fn turn(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch, what: &'static str, why: &str) {
        let (at, instance) = (self.now, self.processes[pid].id.clone());
        let (duty, why) = (duty.clone(), why.to_owned());
        self.story.turns.push(WorkTurn { at, instance, duty, epoch, what, why });
    }

    /// Returns the holds under which the process works.
    pub(super) fn works(&self, pid: Pid) -> Vec<(DutyId, Epoch)> {
        self.processes[pid].work.keys().cloned().collect()
    }

    fn believe(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch) {
        let (local, now) = (self.local(pid), self.now);
        if let Some(work) = self.processes[pid].work_of(duty, epoch)
            && work.may_act(local)
            && !self.excused.contains(&work.hold.nonce)
        {
            work.believes_since.get_or_insert(now);
        }
    }

    /// Ends a belief of the process: it lasted until now, or until its deadline.
    pub(super) fn doubt(&mut self, pid: Pid, duty: &DutyId, epoch: Epoch) {
        let (clock, now) = (self.processes[pid].clock, self.now);
        let Some(work) = self.processes[pid].work_of(duty, epoch) else {
            return;
        };
        if let Some(from) = work.believes_since.take() {
            let until = clock.virtually(work.deadline.at()).min(now);
            let (duty, instance) = (work.hold.duty.clone(), work.hold.instance.clone());
            match self.forgotten.get(&work.hold.nonce) {
                Some(reset) => {
                    let (duty, reset) = (duty.id, *reset);
                    let old = Outlived { duty, epoch, instance, from, until, reset };
                    self.story.outlived.push(old);
                }
                None => {
                    self.story.history.push(Step::Believed { duty, epoch, instance, from, until });
                }
            }
        }
    }

    /// Handles the loss of all sessions by the store. Beliefs under them are excused from here on,
    /// and their members have to wait. `live`: the members before the loss.
    pub(super) fn forget_sessions(&mut self, live: &[Member]) {
        let reset = self.story.witnesses.len();
        let mut members = Vec::new();
        for pid in 0..self.processes.len() {
            let works = self.works(pid);
            works.iter().for_each(|(duty, epoch)| self.doubt(pid, duty, *epoch));
            let Process { life, session, id, engine, .. } = &self.processes[pid];
            let Some(session) = session.as_ref().filter(|_| *life != ProcessState::Gone) else {
                continue;
            };
            // A process that had lost its session before learns only of that. A process that has
            // not learned that it joined cannot know that it was a member.
            let lived = live.iter().find(|member| member.nonce == Some(session.nonce));
            let saw = lived.filter(|_| engine.is_member());
            members.extend(saw.map(|_| id.clone()));
            let until = saw.map(|member| self.now + member.remaining.as_nanos() as Nanos);
            self.forgotten.entry(session.nonce).or_insert(reset);
            self.processes[pid].forgotten = until.map(|until| (reset, until));
            works.iter().for_each(|(duty, epoch)| self.believe(pid, duty, *epoch));
        }
        self.story.witnesses.push(members);
    }

    /// Strikes a resumed process from the members at a reset if its session would have ended during
    /// its pause: it learns only of that, as it would without the reset.
    pub(super) fn sleep_through_reset(&mut self, pid: Pid) {
        let process = &mut self.processes[pid];
        let Some((reset, until)) = process.forgotten.take() else { return };
        // By its own count the session ended before: by the margin, on a clock that may be fast.
        let early = process.ttl.get().as_nanos() as Nanos * 3 / 10;
        if self.now + early >= until {
            self.story.witnesses[reset].retain(|member| *member != process.id);
        }
    }

    /// Excuses the further beliefs of a process, because the store has ended its holds early.
    pub(super) fn excuse(&mut self, pid: Pid) {
        for (duty, epoch) in self.works(pid) {
            self.doubt(pid, &duty, epoch);
        }
        // Grants of this session may still arrive.
        let session = self.processes[pid].session.as_ref();
        self.excused.extend(session.map(|session| session.nonce));
    }

    /// Ends excuses after the store has lost writes. These may include the end of a session: its
    /// holds are valid again, and beliefs under them count.
    pub(super) fn excuse_no_longer(&mut self) {
        if !self.scenario.is_lossy() {
            return;
        }
        for member in self.backend.members() {
            self.excused.retain(|nonce| member.nonce != Some(*nonce));
        }
        for pid in 0..self.processes.len() {
            for (duty, epoch) in self.works(pid) {
                let work = self.processes[pid].work_of(&duty, epoch).cloned();
                if work.is_some_and(|work| self.backend.ends_at(&work.hold) > self.now) {
                    self.believe(pid, &duty, epoch);
                }
            }
        }
    }

    /// Notes that the work on a duty ended by itself: the member leaves it alone, longer each time,
    /// from a second to a minute.
    pub(super) fn rests(&mut self, pid: Pid, duty: &DutyId) {
        let times = self.processes[pid].rested.entry(duty.clone()).or_default();
        *times += 1;
        let seconds = 1 << (*times - 1).min(6);
        let until = self.now + self.lasts(pid, Duration::from_secs(seconds.min(60)));
        let rest = self.story.rests.entry(duty.clone()).or_default();
        *rest = until.max(*rest);
    }

    /// Returns the members that the process saw last.
    pub(super) fn seen_by(&self, pid: Pid) -> impl Iterator<Item = &Member> {
        self.processes[pid].view.iter().flat_map(|view| &view.members)
    }

    /// Returns the number of duties that the process has and keeps, including those that only its
    /// last look shows as its own.
    fn held(&self, pid: Pid) -> usize {
        let process = &self.processes[pid];
        let holders = process.view.iter().flat_map(|view| view.holders.iter().flatten());
        let own = holders.filter(|seen| {
            seen.holder.as_ref().is_some_and(|now| now.instance == process.id)
                && !process.work.keys().any(|(duty, _)| *duty == seen.duty.id)
        });
        own.count() + process.work.values().filter(|work| work.mode == WorkMode::Runs).count()
    }

    /// Returns its share by the roster, by its last look or by the actual state, whichever is
    /// smaller: a refused claim may have shown it more than its last look.
    fn quota(&self, pid: Pid) -> Option<usize> {
        let seen = self.processes[pid].view.as_ref().and_then(|view| self.share(pid, view));
        seen.into_iter().chain(self.share(pid, &self.backend.view())).min()
    }

    fn share(&self, pid: Pid, view: &GroupView) -> Option<usize> {
        let process = &self.processes[pid];
        let group = GroupConfig::read(&view.document).ok()?;
        // With pins the share is undefined: it includes room for duties that are still to come.
        if !group.pins.is_empty() {
            return None;
        }
        let members = check::roster_members(&view.members, &group);
        let mine = members.iter().position(|member| member.instance == process.id)?;
        let holders = view.holders.as_deref().unwrap_or_default();
        let running = process.work.iter().filter(|(_, work)| work.mode == WorkMode::Runs);
        let own: Vec<DutyId> = running.map(|(key, _)| key.0.clone()).collect();
        let wanted = self.wanted_by(pid).into_iter().filter(|duty| !group.pauses(duty));
        let duties = wanted.map(|duty| {
            let seen = holders.iter().find(|holder| holder.duty.id == duty);
            let seen = seen.and_then(|holder| holder.holder.as_ref());
            let holder = match own.contains(&duty) {
                true => Some(mine as u32),
                false => seen
                    .and_then(|now| {
                        members.iter().position(|member| member.instance == now.instance)
                    })
                    .filter(|member| *member != mine)
                    .map(|member| member as u32),
            };
            RosterDuty { duty, holder, zone: None, pin: None }
        });
        let duties: Vec<RosterDuty> = duties.collect();
        plan(&duties, &members).quotas.get(mine).copied()
    }

    /// Whether a pin takes a duty away, by the last look of the process: it is pinned itself, or a
    /// free duty that is pinned here has no room.
    fn is_pinned_out(&self, pid: Pid, duty: &DutyId) -> bool {
        let process = &self.processes[pid];
        let Some(view) = &process.view else { return false };
        let Ok(group) = GroupConfig::read(&view.document) else { return false };
        let members = check::roster_members(&view.members, &group);
        let Some(member) = members.iter().find(|member| member.instance == process.id) else {
            return false;
        };
        let here = |pin: &Pin| match pin {
            Pin::Instance(instance) => *instance == member.instance,
            Pin::Name(name) => member.name.as_ref() == Some(name),
            Pin::Zone(zone) => member.zone.as_ref() == Some(zone),
        };
        let is_free = |duty: &DutyId| {
            let mut holders = view.holders.iter().flatten();
            !holders.any(|seen| seen.duty.id == *duty && seen.holder.is_some())
        };
        let pinned = |duty: &DutyId| group.pins.get(duty).is_some_and(here);
        let wanted = self.wanted_by(pid).into_iter().filter(|duty| !group.pauses(duty));
        let coming = wanted.filter(|duty| pinned(duty) && is_free(duty)).count();
        group.pins.contains_key(duty) || coming > 0 && self.held(pid) + coming > member.room
    }

    fn wanted_by(&self, pid: Pid) -> Vec<DutyId> {
        let targets = self.processes[pid].targets.targets().iter();
        targets.filter(|target| !target.paused).map(|target| target.id.clone()).collect()
    }

    /// Returns the duties that should be held.
    fn wanted(&self) -> Vec<DutyId> {
        let group = self.backend.group();
        let stands = |duty: &DutyId| !group.pauses(duty);
        let wanted = self.listed.iter().filter(|(duty, paused)| !**paused && stands(duty));
        wanted.map(|(duty, _)| duty.clone()).collect()
    }

    /// Ends the run: records the final beliefs and the desired state.
    pub(super) fn finish(&mut self) {
        let (mut held, mut running) = (Vec::new(), Vec::new());
        for pid in 0..self.processes.len() {
            for (duty, epoch) in self.works(pid) {
                let local = self.local(pid);
                let id = self.processes[pid].id.clone();
                if self.processes[pid].work_of(&duty, epoch).is_some_and(|work| work.may_act(local))
                {
                    held.push((duty.clone(), id.clone()));
                }
                running.push((id, duty.clone(), epoch));
                self.doubt(pid, &duty, epoch);
            }
        }
        let alive = self.processes.iter().filter(|one| one.life != ProcessState::Gone);
        let going = alive.clone().filter(|one| one.leaves);
        let group = self.backend.group();
        let members: Vec<RosterMember> = check::roster_members(&self.backend.members(), &group);
        self.story.last = Final {
            wanted: self.wanted(),
            held,
            alive: alive.map(|process| process.id.clone()).collect(),
            running,
            pins: group.pins,
            going: going.map(|process| process.id.clone()).collect(),
            members,
        };
    }
}
