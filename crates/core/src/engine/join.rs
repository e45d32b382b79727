//! Joining and leaving a group.

use std::time::Duration;

use super::status::{TakenName, numbered_name};
use super::{
    Effect, Engine, EngineExit, Fold, GroupConfig, LiveSession, MemberStatus, StopReason,
    StoreRequest, Ticket,
};
use crate::store::{Closed, Member, OpenSession, Opened};
use crate::{Change, Code, DutyId, LocalInstant, Nonce, Problem, Reason, StoreError, Ttl, Version};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum MemberPhase {
    /// Reading the group, to compare its settings.
    Reading(RequestAttempt),
    /// Writing the settings of a group that has none.
    Settling(RequestAttempt),
    /// Opening a session. The first request with this nonce was sent at `since`: the store may
    /// count the TTL from then.
    Opening { attempt: RequestAttempt, nonce: Nonce, since: Option<LocalInstant>, again: bool },
    /// A member.
    Member,
    /// Closing the session.
    Closing(RequestAttempt),
    /// Finished.
    Over,
}

/// A request that is repeated until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestAttempt {
    ticket: Option<Ticket>,
    at: LocalInstant,
    failed: u32,
}

impl RequestAttempt {
    fn new(at: LocalInstant) -> Self {
        Self { ticket: None, at, failed: 0 }
    }
}

impl MemberPhase {
    pub(super) fn first(now: LocalInstant) -> Self {
        Self::Reading(RequestAttempt::new(now))
    }

    fn attempt(&mut self) -> Option<&mut RequestAttempt> {
        match self {
            Self::Reading(attempt)
            | Self::Settling(attempt)
            | Self::Opening { attempt, .. }
            | Self::Closing(attempt) => Some(attempt),
            Self::Member | Self::Over => None,
        }
    }

    pub(super) fn ticket(&mut self) -> Option<&mut Ticket> {
        self.attempt()?.ticket.as_mut()
    }

    /// Folds the attempt for [`Engine::fold`]: the backoff stops growing after `most` failures.
    pub(super) fn fold(&mut self, fold: &Fold, most: u32) {
        if let Some(attempt) = self.attempt() {
            attempt.at = fold.timer(attempt.at);
            attempt.failed = attempt.failed.min(most);
        }
    }

    /// Returns when the next request is due.
    pub(super) fn next(&mut self, now: LocalInstant) -> LocalInstant {
        match self.attempt() {
            Some(RequestAttempt { ticket: None, at, .. }) => *at,
            _ => now.plus(Duration::from_secs(1)),
        }
    }
}

impl Engine {
    /// Sends the next request for joining or leaving.
    pub(super) fn go_on(&mut self, now: LocalInstant) {
        if matches!(self.phase, MemberPhase::Over) {
            return;
        }
        if self.leaving.is_some_and(|until| now >= until) {
            let why = "the store did not respond in time: the holds end at their TTL";
            return self.end(why, now);
        }
        let Some(RequestAttempt { ticket: None, at, .. }) = self.phase.attempt().copied() else {
            return;
        };
        if now < at {
            return;
        }
        if self.leaving.is_some() && self.live.is_none() {
            return self.end("left on request", now);
        }
        let request = match &mut self.phase {
            MemberPhase::Reading(_) => {
                StoreRequest::Look { group: self.settings.group.clone(), holders: true }
            }
            // The document is written after the group was read.
            MemberPhase::Settling(_) => return self.phase = MemberPhase::first(now),
            MemberPhase::Opening { nonce, since, .. } => {
                let nonce = *nonce;
                since.get_or_insert(now);
                let Some(open) = self.opening(nonce, now) else { return };
                StoreRequest::Open(open)
            }
            MemberPhase::Closing(_) => {
                let Some(live) = &self.live else { return self.end("left on request", now) };
                StoreRequest::Close { session: live.session.clone(), reason: reason("leave") }
            }
            MemberPhase::Member | MemberPhase::Over => return,
        };
        let ticket = self.ask(request, self.request_timeout());
        if let Some(attempt) = self.phase.attempt() {
            attempt.ticket = Some(ticket);
        }
    }

    fn opening(&mut self, nonce: Nonce, now: LocalInstant) -> Option<OpenSession> {
        match self.status().note() {
            Ok(note) => Some(OpenSession {
                group: self.settings.group.clone(),
                instance: self.settings.instance.clone(),
                nonce,
                ttl: self.settings.ttl,
                note,
            }),
            Err(error) => {
                self.fail(error.problem().clone(), now);
                None
            }
        }
    }

    /// Whether this member closes its session, or has closed it.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.phase, MemberPhase::Closing(_) | MemberPhase::Over)
    }

    /// Whether the current phase waits for this response.
    fn is_awaited(&mut self, ticket: Ticket) -> bool {
        self.phase.attempt().is_some_and(|attempt| attempt.ticket == Some(ticket))
    }

    /// Repeats the request of this phase, with backoff.
    fn try_again(&mut self, now: LocalInstant) {
        let most = self.settings.look_every;
        let pause = self.pause();
        if let Some(attempt) = self.phase.attempt() {
            let pause = (pause * 2u32.saturating_pow(attempt.failed.min(8))).min(most);
            *attempt =
                RequestAttempt { ticket: None, at: now.plus(pause), failed: attempt.failed + 1 };
        }
    }

    fn not_joined(&mut self, error: &StoreError, now: LocalInstant) {
        self.complain(now, Change::JoinFailed, error.problem().to_string());
        self.try_again(now);
    }

    /// Handles a look during joining. Returns whether the ticket belonged to one.
    pub(super) fn read_group(
        &mut self,
        ticket: Ticket,
        result: &Result<super::GroupView, StoreError>,
        now: LocalInstant,
    ) -> bool {
        if !matches!(self.phase, MemberPhase::Reading(_)) || !self.is_awaited(ticket) {
            return false;
        }
        match result {
            Ok(view) => self.admit(view, now),
            Err(error) => self.not_joined(error, now),
        }
        true
    }

    /// Joins a group that has this member's layout or none.
    fn admit(&mut self, view: &super::GroupView, now: LocalInstant) {
        let me = &self.settings.instance;
        let others = view.members.iter().filter(|member| &member.instance != me);
        let alone = !others.clone().any(|member| MemberStatus::read(&member.note).is_some());
        let unused = view.holders.as_ref().is_some_and(Vec::is_empty);
        let layout = self.settings.layout;
        let admitted = GroupConfig::read(&view.document).and_then(|group| {
            let same = group.admits(layout, alone, unused)?;
            let ttl = self.agree_on_ttl(&group, &view.members, now)?;
            Ok((group, ttl, same))
        });
        self.choose_name(&view.members);
        match admitted {
            Ok((_, _, true)) => self.open(false, now),
            Ok((group, ttl, false)) => self.settle(group, ttl, view.document.version, now),
            Err(error) => self.fail(error.problem().clone(), now),
        }
    }

    /// Writes this TTL and this member's layout into the document.
    pub(super) fn settle(
        &mut self,
        mut group: GroupConfig,
        ttl: Ttl,
        expected: Version,
        now: LocalInstant,
    ) {
        group.settings = Some((ttl, self.settings.layout));
        match group.document() {
            Ok(document) => {
                let group = self.settings.group.clone();
                let request = StoreRequest::Settle { group, expected, document };
                let ticket = self.ask(request, self.request_timeout());
                if !matches!(self.phase, MemberPhase::Member) {
                    let attempt = RequestAttempt { ticket: Some(ticket), at: now, failed: 0 };
                    self.phase = MemberPhase::Settling(attempt);
                }
            }
            Err(error) => self.fail(error.problem().clone(), now),
        }
    }

    /// Reads the document again after this member or another has written it.
    pub(super) fn settled(
        &mut self,
        ticket: Ticket,
        result: Result<(), StoreError>,
        now: LocalInstant,
    ) {
        if !matches!(self.phase, MemberPhase::Settling(_)) || !self.is_awaited(ticket) {
            return;
        }
        match result {
            Ok(()) => self.phase = MemberPhase::first(now),
            Err(error) => self.not_joined(&error, now),
        }
    }

    /// Starts to open a session with a fresh nonce. `again`: the member had a session before.
    pub(super) fn open(&mut self, again: bool, now: LocalInstant) {
        let nonce = self.random.nonce();
        self.phase =
            MemberPhase::Opening { attempt: RequestAttempt::new(now), nonce, since: None, again };
    }

    pub(super) fn opened(
        &mut self,
        ticket: Ticket,
        result: Result<Opened, StoreError>,
        now: LocalInstant,
    ) {
        if !self.is_awaited(ticket) {
            return;
        }
        let MemberPhase::Opening { since, again, .. } = &self.phase else { return };
        let (since, again) = (since.unwrap_or(now), *again);
        let ttl = self.settings.ttl;
        match result {
            Ok(Opened::Open(session)) => {
                // The store may have counted since the first attempt with this nonce.
                let deadline = ttl.deadline(since);
                let renew_at = since.plus(ttl.renew_every(self.random.jitter()));
                let said = self.status().note().unwrap_or_default();
                self.live = Some(LiveSession { session, deadline, renew_at, said });
                self.phase = MemberPhase::Member;
                self.trouble = false;
                self.no_complaint(Change::JoinFailed);
                self.record(now, Change::Joined, None, None, if again { "again" } else { "start" });
                if self.waiting.is_some() {
                    let why = "the store was unreachable or reset";
                    self.record(now, Change::Waiting, None, None, why);
                }
                self.look_now(now);
            }
            Ok(Opened::Spent) => self.open(again, now),
            Ok(Opened::Taken) if again && now.since(since) < ttl.get() * 2 => self.try_again(now),
            Ok(Opened::Taken) => {
                let detail = format!("{} already has a live session", self.settings.instance);
                self.fail(Problem::new(Code::DuplicateInstance, detail), now);
            }
            Ok(Opened::Evicted) => {
                let detail = self.settings.instance.to_string();
                self.fail(Problem::new(Code::EvictedInstance, detail), now);
            }
            Err(error) => {
                self.trouble = true;
                self.not_joined(&error, now);
            }
        }
    }

    pub(super) fn status(&self) -> MemberStatus {
        let settings = &self.settings;
        let going = self.is_going();
        MemberStatus {
            weight: settings.weight,
            room: settings.room,
            takes: !going && self.waiting.is_none(),
            keeps: !going,
            failing: self.failing.is_some(),
            zone: settings.zone.clone(),
            name: self.name.clone(),
            revision: settings.revision.clone(),
            only: self.only(),
            ttl: Some(settings.ttl),
            longest: Some(self.group_ttl.longest),
            view: self.view,
        }
    }

    /// Adds a number to the name while another member has it. Two members that join at the same
    /// time may publish the same name: the next look settles it.
    pub(super) fn choose_name(&mut self, members: &[Member]) {
        let Some(base) = self.settings.name.as_ref().filter(|_| self.settings.numbered) else {
            return;
        };
        let me = &self.settings.instance;
        let others = members.iter().filter(|member| member.instance != *me);
        let named = |member: &Member| {
            let name = MemberStatus::read(&member.note)?.name?;
            Some(TakenName { name, yields: member.instance > *me })
        };
        let taken: Vec<TakenName> = others.filter_map(named).collect();
        let current = self.live.as_ref().and(self.name.as_ref());
        self.name = Some(numbered_name(base, current, &taken));
    }

    /// Returns the duty of a standby.
    fn only(&self) -> Option<DutyId> {
        let standby = matches!(self.settings.layout, super::Layout::Standby);
        let first = self.listing.as_ref()?.targets().first()?;
        standby.then(|| first.id.clone())
    }

    /// Hands everything over, if another member can take it.
    pub(super) fn drain(&mut self, now: LocalInstant) {
        if self.is_going() {
            return;
        }
        if !self.holds.is_empty() && !self.has_successor() {
            let detail = format!("no other member of {} can take the duties", self.settings.group);
            let problem = Problem::new(Code::LastMember, detail);
            self.record(now, Change::Refused, None, None, problem.to_string());
            return self.out.push(Effect::Refuse(problem));
        }
        self.draining = true;
        self.todo.clear();
        if self.live.is_none() {
            return self.end("left on request", now);
        }
        self.say_status(now);
        self.shed_for_drain(StopReason::Drain, now);
    }

    /// Releases everything as soon as the work has stopped.
    pub(super) fn leave(&mut self, now: LocalInstant) {
        if self.leaving.is_some() {
            return;
        }
        // The drain time for work, one TTL for cancelled work, and one for closing.
        self.leaving = Some(now.plus(self.settings.drain + self.settings.ttl.get() * 2));
        self.todo.clear();
        let duties: Vec<_> = self.holds.keys().cloned().collect();
        for duty in duties {
            self.ask_to_stop(&duty, StopReason::Leave, now);
        }
        self.say_status(now);
        // A pending open request may have made a session; it is closed when the response arrives.
        let opening =
            matches!(&self.phase, MemberPhase::Opening { attempt, .. } if attempt.ticket.is_some());
        if self.live.is_none() && !opening {
            self.end("left on request", now);
        }
    }

    /// Closes the session when all work has stopped: that releases all holds at once.
    pub(super) fn finish_if_done(&mut self, now: LocalInstant) {
        if !matches!(self.phase, MemberPhase::Member) || !self.is_going() {
            return;
        }
        if self.leaving.is_some_and(|until| now >= until) {
            return self.go_on(now);
        }
        let asked = self.claiming.is_some() || self.releasing.is_some();
        let done = self.ready.len() == self.holds.len();
        // A member that only drains releases its holds one by one.
        let done = done && (self.leaving.is_some() || self.holds.is_empty());
        if done && !asked {
            // A session without holds blocks nobody.
            let ttl = self.settings.ttl.get();
            let most = now.plus(if self.holds.is_empty() { ttl / 5 } else { ttl });
            self.leaving = Some(self.leaving.map_or(most, |until| until.min(most)));
            self.phase = MemberPhase::Closing(RequestAttempt::new(now));
            self.go_on(now);
        }
    }

    pub(super) fn closed(
        &mut self,
        ticket: Ticket,
        result: Result<Closed, StoreError>,
        now: LocalInstant,
    ) {
        if !self.is_awaited(ticket) {
            return;
        }
        match result {
            Ok(Closed::Closed | Closed::AlreadyEnded) => {
                let given_back: Vec<_> =
                    self.holds.iter().map(|(duty, held)| (duty.clone(), held.epoch())).collect();
                for (duty, epoch) in given_back {
                    self.record(now, Change::Released, Some((&duty, epoch)), None, "leave");
                }
                self.holds.clear();
                self.ready.clear();
                self.end("left on request", now);
            }
            Err(_) => self.try_again(now),
        }
    }

    pub(super) fn end(&mut self, why: &'static str, now: LocalInstant) {
        if matches!(self.phase, MemberPhase::Over) {
            return;
        }
        self.lose_everything(StopReason::Leave, now);
        self.live = None;
        self.phase = MemberPhase::Over;
        self.record(now, Change::Left, None, None, why);
        let end = self.failed.take().map_or(EngineExit::Left, EngineExit::Failed);
        self.out.push(Effect::End(end));
    }
}

/// Returns a fixed word as a reason.
pub(super) fn reason(word: &'static str) -> Reason {
    // A short word without control characters is always a valid reason.
    #[expect(clippy::expect_used)]
    Reason::new(word).expect("a word of ours is valid")
}
