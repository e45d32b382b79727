//! Balancing: which duties to give away and which to claim.

use std::collections::BTreeSet;
use std::time::Duration;

use super::snapshot::{self, DutyStatus};
use super::work::{EngineHold, WorkState};
use super::{ClaimCandidate, DrainMode, Engine, Layout, MemberSettings, StopReason};
use crate::fnv::Fnv;
use crate::roster::{self, RosterDuty, RosterMember};
use crate::text::{counted, span};
use crate::{Change, Code, DutyId, Listing, LocalInstant, Mutant, Problem, Target};

/// Delay before the next best member claims a free duty.
const RANK_DELAY: Duration = Duration::from_millis(500);
/// Limit of free duties planned for others that one member tracks.
const MAX_FALLBACK_DUTIES: usize = 1_000;

/// The members that duties are planned over, and the place of this one among them.
pub(super) struct OwnRoster {
    pub(super) all: snapshot::RosterInput,
    /// The index of this member.
    pub(super) me: u32,
    /// Whether members run different revisions.
    mixed: bool,
}

impl OwnRoster {
    pub(super) fn members(&self) -> &[RosterMember] {
        &self.all.members
    }

    /// Views reported by the other members; foreign members report none.
    fn views(&self) -> impl Iterator<Item = u64> {
        let others = (0..).zip(self.all.ours()).filter(|(n, _)| *n != self.me);
        others.filter_map(|(_, said)| Some(said?.view))
    }
}

pub(super) struct OwnPlan {
    pub(super) roster: OwnRoster,
    pub(super) duties: Vec<PlannedDuty>,
}

pub(super) struct PlannedDuty {
    pub(super) duty: RosterDuty,
    /// The planned holder.
    pub(super) to: Option<u32>,
    free: bool,
}

impl OwnPlan {
    fn free(&self) -> impl Iterator<Item = &PlannedDuty> {
        self.duties.iter().filter(|planned| planned.free)
    }

    /// For each member, whether it has no room left.
    pub(super) fn full_members(&self) -> Vec<bool> {
        let mut room: Vec<usize> = self.roster.members().iter().map(|member| member.room).collect();
        for holder in self.duties.iter().filter_map(|planned| planned.duty.holder) {
            if let Some(room) = room.get_mut(holder as usize) {
                *room = room.saturating_sub(1);
            }
        }
        room.iter().map(|room| *room == 0).collect()
    }
}

impl Engine {
    pub(super) fn take_listing(&mut self, listing: Listing, now: LocalInstant) {
        if self.listing.as_ref() == Some(&listing) {
            self.no_complaint(Change::ListFailed);
            return;
        }
        let (count, most) = (listing.targets().len(), self.settings.max_duties);
        if count > most {
            let detail = format!("the list has {}; the limit is {most}", duties(count));
            let problem = Problem::new(Code::TooManyTargets, detail);
            return self.complain(now, Change::ListFailed, problem.to_string());
        }

        let known = |duty: &DutyId| find(&listing, duty).is_some();
        self.floors.retain(|duty, _| known(duty));
        self.last.retain(|duty, _| known(duty));
        self.resting.retain(|duty, _| known(duty));
        self.refused.retain(|duty, _| known(duty));
        self.no_complaint(Change::ListFailed);
        let reason = match listing.repeated() {
            0 => duties(count),
            repeated => {
                let entries = counted(repeated, "duplicate entry", "duplicate entries");
                format!("{}; {entries} merged", duties(count))
            }
        };
        self.record(now, Change::Listed, None, None, reason);
        let mut hash = Fnv::new();
        for target in listing.targets() {
            hash.field(target.id.as_str().as_bytes());
            hash.field(&[u8::from(target.paused)]);
        }
        self.listed = hash.0;
        self.listing = Some(listing);
        self.balance(false, now);
        self.look_now(now);
    }

    /// Plans, and does this member's part of the plan. `fresh`: the group was read just now, which
    /// giving duties away requires and claiming does not.
    // Why: docs/decisions/0005-release-needs-a-fresh-look.md
    pub(super) fn balance(&mut self, fresh: bool, now: LocalInstant) {
        self.fallback = None;
        if self.live.is_none() {
            return;
        }
        let kept = self.shed_is_kept();
        self.shed.retain(|_, at| now < at.plus(kept));
        self.resting.retain(|_, rest| now < rest.until.plus(rest.length));
        self.stop_unlisted(now);
        let Some(table) = self.table() else { return };
        self.view = self.view_number(&table);
        self.say_status(now);
        self.mixed = table.mixed.then(|| self.mixed.unwrap_or(now));
        let Some(plan) = self.plan(table) else { return };
        self.update_foreign(&plan, now);
        self.shed(&plan, fresh, now);
        self.keep_free_since(&plan, now);
        self.plan_claims(&plan, now);
        self.tell_standing(&plan, now);
    }

    /// Stops and gives back duties that are paused or gone.
    fn stop_unlisted(&mut self, now: LocalInstant) {
        let Some(listing) = &self.listing else { return };
        let group = self.seen.as_ref().map(|seen| &seen.group);
        let why = |duty: &DutyId| match find(listing, duty) {
            None => Some(StopReason::Gone),
            Some(target) if target.paused => Some(StopReason::Paused),
            Some(_) => group.is_some_and(|group| group.pauses(duty)).then_some(StopReason::Paused),
        };
        let duties = self.holds.keys().filter_map(|duty| Some((duty.clone(), why(duty)?)));
        for (duty, why) in duties.collect::<Vec<_>>() {
            self.ask_to_stop(&duty, why, now);
        }
    }

    /// The planned members, if this one is among them.
    fn table(&self) -> Option<OwnRoster> {
        let (seen, live) = (self.seen.as_ref()?, self.live.as_ref()?);
        let status = self.status();
        let me = Some((live.session.nonce, &status));
        let all = snapshot::RosterInput::new(&seen.members, &seen.group, status.only.as_ref(), me);
        let mixed = all.ours().flatten().any(|said| said.revision != status.revision);
        Some(OwnRoster { me: all.me?, all, mixed })
    }

    /// Equal for members that see the same members and duties.
    // Why: docs/decisions/0003-members-compare-views.md
    fn view_number(&self, table: &OwnRoster) -> u64 {
        let mut hash = Fnv::new();
        for member in table.members() {
            hash.field(member.instance.as_str().as_bytes());
            hash.field(&member.weight.to_le_bytes());
            hash.field(&[u8::from(member.takes), u8::from(member.keeps)]);
        }
        hash.field(&self.listed.to_le_bytes());
        let version = self.seen.as_ref().map_or(0, |seen| seen.version.get());
        hash.field(&version.to_le_bytes());
        hash.0
    }

    fn plan(&self, roster: OwnRoster) -> Option<OwnPlan> {
        let (listing, seen) = (self.listing.as_ref()?, self.seen.as_ref()?);
        let wishes = self.claiming.iter().flat_map(|claiming| &claiming.wishes);
        let claiming: BTreeSet<_> = wishes.map(|wish| &wish.duty).collect();
        let me = &self.settings.instance;
        let now = |duty: &DutyId| match (self.holds.get(duty), seen.holders.get(duty)) {
            (Some(held), _) if held.release.is_none() => DutyStatus::Held(roster.me),
            (Some(_), _) => DutyStatus::Leaving,
            (None, Some(Some(holder))) if holder != me || !claiming.contains(duty) => {
                roster.all.index_of(holder).map_or(DutyStatus::Outside, DutyStatus::Held)
            }
            // A read of the group may show the grant before the claim is answered.
            (None, _) if claiming.contains(duty) => DutyStatus::Coming(roster.me),
            (None, _) => DutyStatus::Free,
        };
        let (duties, free) = snapshot::planned_duties(listing.targets(), &seen.group, now);
        let plan = roster.all.plan(&duties).holders;
        let planned = duties.into_iter().zip(plan).zip(free);
        let duties = planned.map(|((duty, to), free)| PlannedDuty { duty, to, free }).collect();
        Some(OwnPlan { roster, duties })
    }

    /// Whether operators want this member to hold nothing, and it may release its duties.
    fn is_drained(&self, table: &OwnRoster) -> bool {
        let group = self.seen.as_ref().map(|seen| &seen.group);
        match group.and_then(|group| group.drained.get(&self.settings.instance)) {
            None => false,
            Some(DrainMode::Anyway) => true,
            Some(DrainMode::HandOver) => has_taker(table),
        }
    }

    /// Whether another member could take over.
    pub(super) fn has_successor(&self) -> bool {
        self.table().is_some_and(|table| has_taker(&table))
    }

    /// Returns how many duties may begin to move: at most a tenth of the group moves at a time
    /// (R25).
    pub(super) fn room_to_move(&self) -> usize {
        let listed = self.listing.as_ref().map_or(0, |listing| listing.targets().len());
        let moving = |held: &&EngineHold| held.release.is_some() && held.work != WorkState::Stopped;
        let moving = self.holds.values().filter(moving).count();
        if Mutant::R25All.is_on() {
            return usize::MAX;
        }
        (listed / 10).max(4).saturating_sub(moving)
    }

    pub(super) fn shed_for_drain(&mut self, why: StopReason, now: LocalInstant) {
        let running = |held: &EngineHold| held.work == WorkState::Running && held.release.is_none();
        let duties = self.holds.iter().filter(|(_, held)| running(held)).map(|(d, _)| d.clone());
        let duties: Vec<_> = duties.take(self.room_to_move()).collect();
        for duty in duties {
            self.ask_to_stop(&duty, why, now);
        }
    }

    /// Gives away what exceeds this member's share: only when all members have the same view (R20),
    /// not all at once (R25), and no recently acquired duty (R19) unless a pinned duty needs room.
    // Why: docs/decisions/0008-no-rebalancing-between-revisions.md
    fn shed(&mut self, plan: &OwnPlan, fresh: bool, now: LocalInstant) {
        let table = &plan.roster;
        if self.draining || self.is_drained(table) {
            return self.shed_for_drain(StopReason::Drain, now);
        }
        if self.failing.is_some() && !table.members()[table.me as usize].keeps {
            return self.shed_for_drain(StopReason::Failing, now);
        }
        let rollout = self.mixed.is_some_and(|since| now.since(since) < self.settings.rollout);
        // All see the same members and duties (R20).
        let agreed = table.views().all(|view| view == self.view) || Mutant::R20Views.is_on();
        // The outcome of a claim under way is not known yet.
        let unsure = self.claiming.is_some() || self.waiting.is_some();
        if !agreed || rollout || unsure {
            return;
        }
        if table.all.foreign {
            return self.shed_by_their_rule(plan, fresh, now);
        }
        let (mut surplus, early) = self.surplus(plan, now);
        let lacking = self.lacking(plan, now).saturating_sub(surplus.len());
        let (taken, kept) = early.split_at(lacking.min(early.len()));
        surplus.extend(taken.iter().map(|(duty, _)| (*duty, StopReason::Pin)));
        kept.iter().for_each(|(_, settled)| self.balance_at(*settled));
        if !fresh && !surplus.is_empty() {
            return self.look_now(now);
        }
        for (duty, why) in surplus.into_iter().take(self.room_to_move()) {
            self.shed.insert(duty.clone(), now);
            self.ask_to_stop(duty, why, now);
        }
    }

    /// Duties of this member that the plan gives to another: those that it may give away now, with
    /// the reason, and those acquired too recently (R19), with the instant from which it may.
    #[allow(clippy::type_complexity, reason = "two lists that are named above")]
    fn surplus<'a>(
        &self,
        plan: &'a OwnPlan,
        now: LocalInstant,
    ) -> (Vec<(&'a DutyId, StopReason)>, Vec<(&'a DutyId, LocalInstant)>) {
        let (mut settled, mut early) = (Vec::new(), Vec::new());
        let me = plan.roster.me;
        for PlannedDuty { duty: RosterDuty { duty, holder, pin, .. }, to, .. } in &plan.duties {
            let mut elsewhere = to.is_some_and(|to| to != me);
            if Mutant::R19Swap.is_on() {
                elsewhere |= roster::order(duty, plan.roster.members()).first() != Some(&me);
            }
            let elsewhere = elsewhere && *holder == Some(me);
            let Some(held) = self.holds.get(duty).filter(|_| elsewhere) else { continue };
            if held.work != WorkState::Running || held.release.is_some() {
                continue;
            }
            let stays_until = held.since.plus(self.settings.window);
            match held.moved && now < stays_until && !Mutant::R19Window.is_on() {
                true => early.push((duty, stays_until)),
                false if pin.is_some() => settled.push((duty, StopReason::Pin)),
                false => settled.push((duty, StopReason::Balance)),
            }
        }
        (settled, early)
    }

    /// Returns how many duties this member could claim now if it had room. Only pins cause this:
    /// when they swap duties of two full members, each waits for the other, and a window on one
    /// side alone would block both forever.
    fn lacking(&self, plan: &OwnPlan, now: LocalInstant) -> usize {
        let rests = |duty| self.resting.get(duty).is_some_and(|rest| now < rest.until);
        let waits = |duty| rests(duty) || self.stopping.contains_key(duty);
        let mine = plan.free().filter(|planned| planned.to == Some(plan.roster.me));
        let coming = mine.filter(|planned| !waits(&planned.duty.duty));
        let stay = self.holds.values().filter(|held| held.release.is_none()).count();
        (coming.count() + stay).saturating_sub(self.settings.room)
    }

    /// Time for which this member remembers what it gave away: longer than the work of both members
    /// may take to stop.
    fn shed_is_kept(&self) -> Duration {
        let MemberSettings { window, drain, look_every, .. } = self.settings;
        (window * 3).max(drain * 2 + look_every * 4)
    }

    fn keep_free_since(&mut self, plan: &OwnPlan, now: LocalInstant) {
        let mut since = std::mem::take(&mut self.free);
        for duty in plan.free().map(|planned| &planned.duty.duty) {
            self.free.insert(duty.clone(), since.remove(duty).unwrap_or(now));
        }
    }

    /// Plans the claims: duties that the plan gives to this member, and duties that it gives to
    /// another but that stayed free. A free duty may always be claimed.
    // Why: docs/decisions/0007-minimum-residence-after-a-move.md
    fn plan_claims(&mut self, plan: &OwnPlan, now: LocalInstant) {
        self.todo.clear();
        let table = &plan.roster;
        let me = &table.members()[table.me as usize];
        if self.waiting.is_some() || !me.takes || me.weight == 0 {
            return;
        }
        // Equal standbys do not wait for the planned one.
        let equals = table.members().iter().all(|member| member.weight == me.weight);
        let standby = matches!(self.settings.layout, Layout::Standby);
        let eager = standby && equals && !table.all.foreign;
        let full_members = plan.full_members();
        let mut fallbacks = 0;
        for PlannedDuty { duty: RosterDuty { duty, pin, .. }, to, .. } in plan.free() {
            if self.is_claiming(duty) {
                continue;
            }
            let rests = self.resting.get(duty).map(|rest| rest.until);
            let rests = rests.max(self.refused.get(duty).map(|refusal| refusal.until));
            if let Some(until) = rests.filter(|until| now < *until) {
                self.balance_at(until);
                continue;
            }
            let eager = eager && pin.is_none() && !self.shed.contains_key(duty);
            if *to == Some(table.me) || eager {
                self.todo.push_back(ClaimCandidate { duty: duty.clone(), beyond: false });
                continue;
            }
            fallbacks += 1;
            if fallbacks > MAX_FALLBACK_DUTIES {
                continue;
            }
            let full = to.is_some_and(|to| full_members.get(to as usize) == Some(&true));
            let at = self.turn_of(duty, full, table, now);
            if now >= at {
                self.todo.push_back(ClaimCandidate { duty: duty.clone(), beyond: true });
            }
            self.balance_at(at.max(now.plus(RANK_DELAY / 2)));
        }
    }

    /// Plans again no later than `at`.
    fn balance_at(&mut self, at: LocalInstant) {
        self.fallback = Some(self.fallback.map_or(at, |before| before.min(at)));
    }

    /// Returns when this member may claim a duty that the plan gives to another. `full`: the other
    /// has to make room first.
    // Why: docs/decisions/0009-standbys-claim-immediately.md
    fn turn_of(
        &self,
        duty: &DutyId,
        full: bool,
        table: &OwnRoster,
        now: LocalInstant,
    ) -> LocalInstant {
        let shed = self.shed.contains_key(duty);
        let mut since = self.free.get(duty).copied().unwrap_or(now);
        // The other member has to drain a duty first. Its drain time is not known, so this member's
        // own is assumed.
        if full && shed {
            since = since.plus(self.settings.drain);
        }
        // The planned member may notice only at its next look, and foreign members look every few
        // seconds. The member that gave the duty away comes last.
        let looks = if table.all.foreign { 10 } else { 1 };
        let looks = if shed { looks + 2 } else { looks };
        let since = since.plus(self.settings.look_every * looks);
        if now < since {
            return since;
        }
        let order = roster::order(duty, table.members());
        let rank = order.iter().position(|member| *member == table.me).unwrap_or(order.len());
        since.plus(RANK_DELAY * u32::try_from(rank).unwrap_or(u32::MAX))
    }

    /// Records once that this member stands by, or that no member has room for some duties.
    fn tell_standing(&mut self, plan: &OwnPlan, now: LocalInstant) {
        let listed = self.listing.as_ref().map_or(&[][..], Listing::targets);
        let wanted = listed.iter().any(|target| !target.paused);
        let waits = self.settings.weight == 0 || plan.free().next().is_none();
        let idle = self.holds.is_empty() && waits && wanted;
        if idle && !self.standing_by {
            let holder = |target: &Target| self.seen.as_ref()?.holders.get(&target.id)?.clone();
            let only = if let [one] = listed { holder(one) } else { None };
            self.record(now, Change::Standby, None, only, "other members hold all duties");
        }
        self.standing_by = idle;
        if self.is_going() {
            return;
        }
        let unheld = plan.free().filter(|planned| planned.to.is_none()).count();
        if unheld != self.unheld && unheld > 0 {
            let duties = duties(unheld);
            let why = match self.waiting {
                Some(until) => {
                    let left = span(until.since(now).max(Duration::from_secs(1)));
                    format!("{duties}: waiting for previous leases to expire ({left} left)")
                }
                None => format!("no member has room for {duties}"),
            };
            self.record(now, Change::Unheld, None, None, why);
        }
        self.unheld = unheld;
    }

    /// A duty was given back. Other members get a hint from the store; this one looks at once.
    pub(super) fn after_release(&mut self, now: LocalInstant) {
        self.balance(false, now);
        self.look_now(now);
    }
}

fn duties(count: usize) -> String {
    counted(count, "duty", "duties")
}

fn has_taker(table: &OwnRoster) -> bool {
    let mut others = (0..).zip(table.members()).filter(|(n, _)| *n != table.me);
    others.any(|(_, member)| member.takes && member.weight > 0 && member.room > 0)
}

fn find<'a>(listing: &'a Listing, duty: &DutyId) -> Option<&'a Target> {
    let targets = listing.targets();
    targets.binary_search_by(|target| target.id.cmp(duty)).ok().map(|at| &targets[at])
}
