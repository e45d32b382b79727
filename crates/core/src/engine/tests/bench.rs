//! Test bench for one engine: tests supply the responses.

use super::super::*;
use crate::store::{
    Claimed, CurrentHolder, GroupDocument, HoldFate, Holder, KeptAlive, Member, Opened, Replaced,
};
use crate::{DutyKey, GroupName, Hold, Mark, Mutant, Nonce, Target, Ttl, Version};

pub(super) const TTL: u64 = 10_000;

/// One engine, its clock, its pending requests and its last effects.
pub(super) struct Bench {
    pub(super) engine: Engine,
    pub(super) now: u64,
    pub(super) asked: Vec<(Ticket, StoreRequest)>,
    pub(super) done: Vec<Effect>,
    /// The operators' orders.
    pub(super) group: GroupConfig,
}

impl Bench {
    pub(super) fn new() -> Self {
        if let Ok(name) = std::env::var(Mutant::VARIABLE) {
            Mutant::turn_on(&name).unwrap();
        }
        let group = GroupName::new("g").unwrap();
        let ttl = Ttl::new(Duration::from_millis(TTL)).unwrap();
        let settings = MemberSettings::new(group, instance("me"), ttl, Layout::Targets);
        let engine = Engine::new(settings, 7, at(0));
        let group =
            GroupConfig { settings: Some((ttl, Layout::Targets)), ..GroupConfig::default() };
        Self { engine, now: 0, asked: Vec::new(), done: Vec::new(), group }
    }

    /// Creates a member that holds the duty `d` under epoch 5 since instant 0.
    pub(super) fn holding() -> Self {
        let mut bench = Self::new();
        bench.list(&["d"]);
        bench.join();
        bench.see(&[], &[("d", None)]);
        bench.grant("d", 5);
        assert!(bench.did(|effect| matches!(effect, Effect::Assign { .. })));
        // The first keep-alive publishes the view; it was sent before the grant.
        bench.keep(&[]);
        bench
    }

    pub(super) fn step(&mut self, event: EngineEvent) {
        let effects = self.engine.step(event, at(self.now));
        self.done.clear();
        for effect in effects {
            match effect {
                Effect::Ask { ticket, request, .. } => self.asked.push((ticket, request)),
                effect => self.done.push(effect),
            }
        }
    }

    pub(super) fn tick_at(&mut self, now: u64) {
        self.now = now;
        self.step(EngineEvent::Tick);
    }

    /// Ticks as a driver does: whenever a tick is due.
    pub(super) fn run_until(&mut self, end: u64) -> Vec<Effect> {
        let mut all = Vec::new();
        while self.engine.wake_at() < at(end) {
            self.tick_at(self.engine.wake_at().as_nanos() / 1_000_000 + 1);
            all.append(&mut self.done);
        }
        self.now = end;
        all
    }

    pub(super) fn asked(
        &mut self,
        which: impl Fn(&StoreRequest) -> bool,
    ) -> Option<(Ticket, StoreRequest)> {
        // The newest one: an older one may belong to a session that has ended.
        let found = self.asked.iter().rposition(|(_, request)| which(request))?;
        Some(self.asked.remove(found))
    }

    pub(super) fn answer(&mut self, which: impl Fn(&StoreRequest) -> bool, answer: StoreResponse) {
        let (ticket, _) = self.asked(which).expect("nothing of that kind was asked");
        self.step(EngineEvent::Answered(ticket, answer));
    }

    pub(super) fn did(&self, which: impl Fn(&Effect) -> bool) -> bool {
        self.done.iter().any(which)
    }

    pub(super) fn recorded(&self, change: Change) -> bool {
        self.did(|effect| matches!(effect, Effect::Record(record) if record.change == change))
    }

    pub(super) fn list(&mut self, duties: &[&str]) {
        let target = |duty: &&str| Target::new(DutyId::new(*duty).unwrap());
        self.step(EngineEvent::Listed(Listing::new(duties.iter().map(target))));
    }

    pub(super) fn join(&mut self) {
        self.step(EngineEvent::Tick);
        self.answer(
            is_look,
            StoreResponse::Look(Ok(GroupView {
                holders: Some(Vec::new()),
                ..GroupView::default()
            })),
        );
        self.answer(
            is_settle,
            StoreResponse::Settle(Ok(Replaced::Saved(Version::new(1).unwrap()))),
        );
        let view = GroupView {
            holders: Some(Vec::new()),
            document: self.document(),
            ..GroupView::default()
        };
        self.answer(is_look, StoreResponse::Look(Ok(view)));
        self.open();
    }

    pub(super) fn open(&mut self) {
        let (ticket, request) = self.asked(is_open).unwrap();
        let StoreRequest::Open(open) = request else { unreachable!() };
        self.step(EngineEvent::Answered(
            ticket,
            StoreResponse::Open(Ok(Opened::Open(open.session()))),
        ));
        assert!(self.recorded(Change::Joined));
    }

    pub(super) fn document(&self) -> GroupDocument {
        let document = self.group.document().unwrap();
        GroupDocument { version: Version::new(1).unwrap(), document }
    }

    pub(super) fn nonce(&self) -> Nonce {
        self.engine.live.as_ref().unwrap().session.nonce
    }

    /// Looks again, with this response.
    pub(super) fn look(&mut self, others: &[&str], holders: &[(&str, Option<(&str, u64)>)]) {
        self.step(EngineEvent::Hint);
        self.now += 20;
        self.step(EngineEvent::Tick);
        self.see(others, holders);
    }

    /// Answers the pending look with these other members and holders.
    pub(super) fn see(&mut self, others: &[&str], holders: &[(&str, Option<(&str, u64)>)]) {
        self.see_me(member("me", 0, self.engine.view).note, others, holders);
    }

    /// Does the same, with this note of the member itself.
    pub(super) fn see_me(
        &mut self,
        note: Note,
        others: &[&str],
        holders: &[(&str, Option<(&str, u64)>)],
    ) {
        let mut me = member("me", 0, self.engine.view);
        (me.nonce, me.note) = (Some(self.nonce()), note);
        self.see_members(Some(me), others, holders);
    }

    /// Looks again, with a response that shows neither this member nor any other: the store has
    /// dropped all sessions.
    pub(super) fn look_at_nobody(&mut self, holders: &[(&str, Option<(&str, u64)>)]) {
        self.step(EngineEvent::Hint);
        self.now += 20;
        self.step(EngineEvent::Tick);
        self.see_members(None, &[], holders);
    }

    fn see_members(
        &mut self,
        me: Option<Member>,
        others: &[&str],
        holders: &[(&str, Option<(&str, u64)>)],
    ) {
        let others = others.iter().map(|name| member(name, 9, self.engine.view));
        let mut members: Vec<_> = others.chain(me).collect();
        members.sort_by(|a, b| a.instance.cmp(&b.instance));
        let holders = holders.iter().map(|(duty, of)| Holder {
            duty: key(duty),
            epoch: Some(Epoch::new(of.map_or(1, |(_, epoch)| epoch)).unwrap()),
            holder: of.map(|(name, _)| CurrentHolder {
                instance: instance(name),
                remaining: Duration::from_millis(TTL),
            }),
        });
        let holders = Some(holders.collect());
        let view = GroupView { members, holders, document: self.document() };
        self.answer(is_look, StoreResponse::Look(Ok(view)));
    }

    pub(super) fn grant(&mut self, duty: &str, epoch: u64) {
        let hold = self.hold(duty, epoch);
        self.answer(is_claim, StoreResponse::Claim(Ok(vec![Claimed::Granted(hold)])));
    }

    pub(super) fn hold(&self, duty: &str, epoch: u64) -> Hold {
        Hold {
            duty: key(duty),
            epoch: Epoch::new(epoch).unwrap(),
            instance: instance("me"),
            nonce: self.nonce(),
            mark: Mark(0),
        }
    }

    pub(super) fn keep(&mut self, fates: &[HoldFate]) {
        let kept = KeptAlive::Kept { mark: Mark(0), holds: fates.to_vec() };
        self.answer(is_keep, StoreResponse::KeepAlive(Ok(kept)));
    }

    pub(super) fn stopped(&mut self, duty: &str, epoch: u64) {
        let (duty, epoch) = (DutyId::new(duty).unwrap(), Epoch::new(epoch).unwrap());
        self.step(EngineEvent::Stopped { duty, epoch, how: WorkOutcome::Asked });
    }
}

pub(super) fn at(millis: u64) -> LocalInstant {
    LocalInstant::from_nanos(millis * 1_000_000)
}

pub(super) fn instance(name: &str) -> InstanceId {
    InstanceId::new(name).unwrap()
}

pub(super) fn key(duty: &str) -> DutyKey {
    DutyKey::new("g", duty).unwrap()
}

pub(super) fn member(name: &str, entropy: u128, view: u64) -> Member {
    let failing = name.starts_with("failing");
    // The TTL of its session, and the longest one that it knows of.
    let (ttl, longest) = match name {
        "long" => (2 * TTL, 2 * TTL),
        "short" => (TTL / 2, TTL),
        "unaware" => (TTL / 2, TTL / 2),
        "older" => (0, 0),
        _ => (TTL, TTL),
    };
    let [ttl, longest] = [ttl, longest].map(|ttl| Ttl::new(Duration::from_millis(ttl)).ok());
    let status = MemberStatus { view, failing, ttl, longest, ..MemberStatus::with_room(10) };
    Member {
        instance: instance(name),
        nonce: (name != "foreign").then(|| Nonce::from_entropy(entropy)),
        note: status.note().unwrap(),
        remaining: Duration::from_millis(TTL),
        evicted: false,
    }
}

pub(super) fn lost() -> StoreError {
    StoreError::unknown(Code::Lost, "no answer")
}

pub(super) fn is_look(request: &StoreRequest) -> bool {
    matches!(request, StoreRequest::Look { .. })
}
pub(super) fn is_settle(request: &StoreRequest) -> bool {
    matches!(request, StoreRequest::Settle { .. })
}
pub(super) fn is_open(request: &StoreRequest) -> bool {
    matches!(request, StoreRequest::Open(_))
}
pub(super) fn is_keep(request: &StoreRequest) -> bool {
    matches!(request, StoreRequest::KeepAlive { .. })
}
pub(super) fn is_claim(request: &StoreRequest) -> bool {
    matches!(request, StoreRequest::Claim { .. })
}
pub(super) fn is_release(request: &StoreRequest) -> bool {
    matches!(request, StoreRequest::Release { .. })
}
pub(super) fn is_close(request: &StoreRequest) -> bool {
    matches!(request, StoreRequest::Close { .. })
}
pub(super) fn is_revoke(effect: &Effect) -> bool {
    matches!(effect, Effect::Revoke { .. })
}
