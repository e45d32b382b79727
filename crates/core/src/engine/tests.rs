//! The rules that one member keeps by itself, on answers that are given by hand. How members get
//! along with each other and with a store is the simulator's.

use super::*;
use crate::store::{
    Claimed, Closed, GroupDocument, HoldFate, Holder, HolderNow, KeptAlive, Member, Opened,
    Released, Replaced,
};
use crate::{DutyKey, GroupName, Hold, Mark, Nonce, Target, Ttl, Version};

const TTL: u64 = 10_000;

/// One engine, its clock, and what it asked and did last.
struct Bench {
    engine: Engine,
    now: u64,
    asked: Vec<(Ticket, Request)>,
    done: Vec<Effect>,
}

impl Bench {
    fn new() -> Self {
        let group = GroupName::new("g").unwrap();
        let ttl = Ttl::new(Duration::from_millis(TTL)).unwrap();
        let settings = Settings::new(group, instance("me"), ttl, Layout::Targets);
        let engine = Engine::new(settings, 7, at(0));
        Self { engine, now: 0, asked: Vec::new(), done: Vec::new() }
    }

    /// A member that holds the duty `d` under epoch 5, since the instant 0.
    fn holding() -> Self {
        let mut bench = Self::new();
        bench.list(&["d"]);
        bench.join();
        bench.see(&[], &[("d", None)]);
        bench.grant("d", 5);
        assert!(bench.did(|effect| matches!(effect, Effect::Assign { .. })));
        // The first keep-alive says what this member sees, and left before the grant.
        bench.keep(&[]);
        bench
    }

    fn step(&mut self, event: Event) {
        let effects = self.engine.step(event, at(self.now));
        self.done.clear();
        for effect in effects {
            match effect {
                Effect::Ask { ticket, request, .. } => self.asked.push((ticket, request)),
                effect => self.done.push(effect),
            }
        }
    }

    fn tick_at(&mut self, now: u64) {
        self.now = now;
        self.step(Event::Tick);
    }

    /// Ticks as a driver does: whenever it is due.
    fn run_until(&mut self, end: u64) -> Vec<Effect> {
        let mut all = Vec::new();
        while self.engine.wake_at() < at(end) {
            self.tick_at(self.engine.wake_at().as_nanos() / 1_000_000 + 1);
            all.append(&mut self.done);
        }
        self.now = end;
        all
    }

    fn asked(&mut self, which: impl Fn(&Request) -> bool) -> Option<(Ticket, Request)> {
        let found = self.asked.iter().position(|(_, request)| which(request))?;
        Some(self.asked.remove(found))
    }

    fn answer(&mut self, which: impl Fn(&Request) -> bool, answer: Answer) {
        let (ticket, _) = self.asked(which).expect("nothing of that kind was asked");
        self.step(Event::Answered(ticket, answer));
    }

    fn did(&self, which: impl Fn(&Effect) -> bool) -> bool {
        self.done.iter().any(which)
    }

    fn recorded(&self, change: Change) -> bool {
        self.did(|effect| matches!(effect, Effect::Record(record) if record.change == change))
    }

    fn list(&mut self, duties: &[&str]) {
        let target = |duty: &&str| Target::new(DutyId::new(*duty).unwrap());
        self.step(Event::Listed(Listing::new(duties.iter().map(target))));
    }

    fn join(&mut self) {
        self.step(Event::Tick);
        self.answer(
            is_look,
            Answer::Look(Ok(View { holders: Some(Vec::new()), ..View::default() })),
        );
        self.answer(is_settle, Answer::Settle(Ok(Replaced::Saved(Version::new(1).unwrap()))));
        let view = View { holders: Some(Vec::new()), document: self.document(), ..View::default() };
        self.answer(is_look, Answer::Look(Ok(view)));
        self.open();
    }

    fn open(&mut self) {
        let (ticket, request) = self.asked(is_open).unwrap();
        let Request::Open(open) = request else { unreachable!() };
        self.step(Event::Answered(ticket, Answer::Open(Ok(Opened::Open(open.session())))));
        assert!(self.recorded(Change::Joined));
    }

    fn document(&self) -> GroupDocument {
        let settings = &self.engine.settings;
        let group = Group { settings: Some((settings.ttl, settings.layout)), ..Group::default() };
        let document = group.document().unwrap();
        GroupDocument { version: Version::new(1).unwrap(), document }
    }

    fn nonce(&self) -> Nonce {
        self.engine.live.as_ref().unwrap().session.nonce
    }

    /// Answers the look that is on its way: these other members, and who holds what.
    fn see(&mut self, others: &[&str], holders: &[(&str, Option<(&str, u64)>)]) {
        let mut members: Vec<_> =
            others.iter().map(|name| member(name, 9, self.engine.view)).collect();
        let mut me = member("me", 0, self.engine.view);
        me.nonce = Some(self.nonce());
        members.push(me);
        members.sort_by(|a, b| a.instance.cmp(&b.instance));
        let holders = holders.iter().map(|(duty, of)| Holder {
            duty: key(duty),
            epoch: Some(Epoch::new(of.map_or(1, |(_, epoch)| epoch)).unwrap()),
            holder: of.map(|(name, _)| HolderNow {
                instance: instance(name),
                remaining: Duration::from_millis(TTL),
            }),
        });
        let holders = Some(holders.collect());
        let view = View { members, holders, document: self.document() };
        self.answer(is_look, Answer::Look(Ok(view)));
    }

    fn grant(&mut self, duty: &str, epoch: u64) {
        let hold = self.hold(duty, epoch);
        self.answer(is_claim, Answer::Claim(Ok(vec![Claimed::Granted(hold)])));
    }

    fn hold(&self, duty: &str, epoch: u64) -> Hold {
        Hold {
            duty: key(duty),
            epoch: Epoch::new(epoch).unwrap(),
            instance: instance("me"),
            nonce: self.nonce(),
            mark: Mark(0),
        }
    }

    fn keep(&mut self, fates: &[HoldFate]) {
        let kept = KeptAlive::Kept { mark: Mark(0), holds: fates.to_vec() };
        self.answer(is_keep, Answer::KeepAlive(Ok(kept)));
    }

    fn stopped(&mut self, duty: &str, epoch: u64) {
        let (duty, epoch) = (DutyId::new(duty).unwrap(), Epoch::new(epoch).unwrap());
        self.step(Event::Stopped { duty, epoch, how: Ended::Asked });
    }
}

fn at(millis: u64) -> LocalInstant {
    LocalInstant::from_nanos(millis * 1_000_000)
}

fn instance(name: &str) -> InstanceId {
    InstanceId::new(name).unwrap()
}

fn key(duty: &str) -> DutyKey {
    DutyKey::new("g", duty).unwrap()
}

fn member(name: &str, entropy: u128, view: u64) -> Member {
    let status = Status {
        weight: 1,
        room: 10,
        takes: true,
        keeps: true,
        zone: None,
        name: None,
        revision: None,
        only: None,
        view,
    };
    Member {
        instance: instance(name),
        nonce: Some(Nonce::from_entropy(entropy)),
        note: status.note().unwrap(),
        remaining: Duration::from_millis(TTL),
        evicted: false,
    }
}

fn lost() -> StoreError {
    StoreError::unknown(Code::Lost, "no answer")
}

fn is_look(request: &Request) -> bool {
    matches!(request, Request::Look { .. })
}
fn is_settle(request: &Request) -> bool {
    matches!(request, Request::Settle { .. })
}
fn is_open(request: &Request) -> bool {
    matches!(request, Request::Open(_))
}
fn is_keep(request: &Request) -> bool {
    matches!(request, Request::KeepAlive { .. })
}
fn is_claim(request: &Request) -> bool {
    matches!(request, Request::Claim { .. })
}
fn is_release(request: &Request) -> bool {
    matches!(request, Request::Release { .. })
}
fn is_close(request: &Request) -> bool {
    matches!(request, Request::Close { .. })
}
fn is_revoke(effect: &Effect) -> bool {
    matches!(effect, Effect::Revoke { .. })
}

/// R5, R6: 10 s * 0.9 - 0.5 s after the session was opened, whatever the store says or does not.
#[test]
fn work_is_cancelled_at_the_deadline_without_the_store() {
    let mut bench = Bench::holding();
    let before = bench.run_until(8_499);
    assert!(!before.iter().any(is_revoke));
    let after = bench.run_until(8_600);
    assert!(after.iter().any(is_revoke));
}

/// R5: what counts is when the request left, not when its answer came.
#[test]
fn a_deadline_counts_from_before_the_request_left() {
    let mut bench = Bench::holding();
    bench.run_until(3_400);
    let sent = bench.now;
    assert!(bench.asked.iter().any(|(_, request)| is_keep(request)));
    bench.run_until(4_000);
    bench.keep(&[HoldFate::Kept]);
    let extended = |effect: &Effect| match effect {
        Effect::Extend { deadline, .. } => deadline.at() <= at(sent + 8_500),
        _ => false,
    };
    assert!(bench.did(extended), "{:?}", bench.done);
}

/// R7: a step that comes late by more than the margin stops effects until the store has confirmed,
/// by an answer to what was asked after the pause.
#[test]
fn a_pause_suspends_until_the_store_has_confirmed() {
    let mut bench = Bench::holding();
    bench.run_until(3_400);
    bench.tick_at(5_500);
    assert!(bench.did(|effect| *effect == Effect::Suspend) && bench.recorded(Change::Suspended));
    // This one left before the pause.
    bench.keep(&[HoldFate::Kept]);
    assert!(!bench.recorded(Change::Resumed));
    assert!(!bench.did(|effect| matches!(effect, Effect::Extend { .. })));
    bench.keep(&[HoldFate::Kept]);
    assert!(bench.recorded(Change::Resumed));
    assert!(bench.did(|effect| matches!(effect, Effect::Extend { .. })));
}

#[test]
fn a_small_delay_is_no_pause() {
    let mut bench = Bench::holding();
    let late = bench.engine.wake_at().as_nanos() / 1_000_000 + 400;
    bench.tick_at(late);
    assert!(!bench.recorded(Change::Suspended));
}

#[test]
fn a_lost_hold_is_revoked_at_once_and_a_kept_one_is_not() {
    let mut bench = Bench::holding();
    bench.run_until(3_400);
    bench.keep(&[HoldFate::Lost]);
    assert!(bench.did(is_revoke) && bench.recorded(Change::Revoked));
}

/// R9, R21: nothing of an ended session is used, and who saw the store in trouble waits.
#[test]
fn an_ended_session_loses_everything_and_waits_before_it_claims() {
    let mut bench = Bench::holding();
    let first = bench.nonce();
    bench.run_until(3_400);
    bench.answer(is_keep, Answer::KeepAlive(Ok(KeptAlive::Ended)));
    assert!(bench.did(is_revoke) && bench.recorded(Change::SessionLost));
    bench.stopped("d", 5);
    bench.open();
    assert_ne!(bench.nonce(), first);
    bench.see(&[], &[("d", None)]);
    while bench.now < 3_400 + 9_100 {
        bench.run_until(bench.now + 500);
        if bench.asked.iter().any(|(_, request)| is_keep(request)) {
            bench.keep(&[]);
        }
        let early = bench.now < 3_400 + 8_000;
        assert!(!early || bench.asked(is_claim).is_none(), "it claimed before the TTL was over");
    }
    bench.see(&[], &[("d", None)]);
    let (_, request) = bench.asked(is_claim).unwrap();
    let Request::Claim { wants, .. } = request else { unreachable!() };
    // R2: above every epoch that this member knows.
    assert_eq!(wants[0].floor, Epoch::new(5).unwrap());
}

/// R17: a claim whose answer is lost is looked up, and what it may have got is given back before
/// it is claimed anew.
#[test]
fn an_unknown_claim_is_never_repeated_blindly() {
    let mut bench = Bench::new();
    bench.list(&["d"]);
    bench.join();
    bench.see(&[], &[("d", None)]);
    bench.answer(is_claim, Answer::Claim(Err(lost())));
    assert!(bench.asked(is_claim).is_none());
    bench.run_until(700);
    bench.see(&[], &[("d", Some(("me", 5)))]);
    assert!(!bench.did(|effect| matches!(effect, Effect::Assign { .. })));
    let (ticket, request) = bench.asked(is_release).unwrap();
    let Request::Release { holds, .. } = request else { unreachable!() };
    assert_eq!(holds[0].epoch, Epoch::new(5).unwrap());
    bench.step(Event::Answered(ticket, Answer::Release(Ok(vec![Released::Freed]))));
    assert!(bench.asked(is_claim).is_some());
}

/// R17: a release whose answer is lost may still arrive: the same epoch is never worked under
/// again.
#[test]
fn an_unknown_release_is_repeated_until_it_is_known() {
    let mut bench = Bench::holding();
    bench.list(&[]);
    assert!(bench.did(|effect| matches!(effect, Effect::Drain { why: "gone", .. })));
    assert!(bench.asked(is_release).is_none(), "released before the work had stopped");
    bench.stopped("d", 5);
    bench.answer(is_release, Answer::Release(Err(lost())));
    bench.list(&["d"]);
    bench.asked.retain(|(_, request)| !is_claim(request));
    bench.run_until(700);
    assert!(bench.asked(is_claim).is_none());
    bench.answer(is_release, Answer::Release(Ok(vec![Released::Already])));
    assert!(bench.recorded(Change::Released));
}

/// R17: an answer that comes late is about the hold that was named, not about the next one.
#[test]
fn a_late_answer_to_a_release_leaves_the_next_hold_alone() {
    let mut bench = Bench::holding();
    bench.list(&[]);
    bench.stopped("d", 5);
    let (late, _) = bench.asked(is_release).unwrap();
    bench.list(&["d"]);
    bench.run_until(3_400);
    bench.keep(&[HoldFate::Lost]);
    bench.see(&[], &[("d", None)]);
    bench.grant("d", 6);
    assert!(bench.did(|effect| matches!(effect, Effect::Assign { .. })));
    bench.step(Event::Answered(late, Answer::Release(Ok(vec![Released::NotYours]))));
    assert!(!bench.recorded(Change::Released));
    let held = bench.engine.holds.values().map(Held::epoch).collect::<Vec<_>>();
    assert_eq!(held, [Epoch::new(6).unwrap()]);
}

/// R18: stop, then release, then close.
#[test]
fn leaving_drains_before_it_closes() {
    let mut bench = Bench::holding();
    bench.step(Event::Leave);
    assert!(bench.did(|effect| matches!(effect, Effect::Drain { why: "leave", .. })));
    assert!(bench.asked(is_close).is_none());
    bench.stopped("d", 5);
    bench.answer(is_close, Answer::Close(Ok(Closed::Closed)));
    assert!(bench.did(|effect| *effect == Effect::End(End::Left)));
}

#[test]
fn work_that_does_not_drain_in_time_is_cancelled() {
    let mut bench = Bench::holding();
    bench.list(&[]);
    bench.run_until(3_400);
    bench.keep(&[HoldFate::Kept]);
    let effects = bench.run_until(5_100);
    let over = |effect: &Effect| matches!(effect, Effect::Revoke { why: "drain time is over", .. });
    assert!(effects.iter().any(over));
}

#[test]
fn the_last_member_refuses_to_drain() {
    let mut bench = Bench::holding();
    bench.step(Event::Drain);
    let Some(Effect::Refuse(problem)) = bench.done.last() else { panic!("{:?}", bench.done) };
    assert_eq!(problem.code, Code::LastMember);
    assert!(bench.asked(is_close).is_none());
}

#[test]
fn a_duplicate_and_an_evicted_instance_end() {
    for (opened, code) in
        [(Opened::Taken, Code::DuplicateInstance), (Opened::Evicted, Code::EvictedInstance)]
    {
        let mut bench = Bench::new();
        bench.step(Event::Tick);
        let document = bench.document();
        let view = View { holders: Some(Vec::new()), document, ..View::default() };
        bench.answer(is_look, Answer::Look(Ok(view)));
        bench.answer(is_open, Answer::Open(Ok(opened)));
        let Some(Effect::End(End::Failed(problem))) = bench.done.last() else {
            panic!("{:?}", bench.done)
        };
        assert_eq!(problem.code, code);
    }
}

/// R17: an opening whose answer is lost is the same opening when it is asked again, and the store
/// may have counted since the first time.
#[test]
fn an_unknown_opening_is_repeated_under_its_nonce() {
    let mut bench = Bench::new();
    bench.list(&["d"]);
    bench.step(Event::Tick);
    let document = bench.document();
    let view = View { holders: Some(Vec::new()), document, ..View::default() };
    bench.answer(is_look, Answer::Look(Ok(view)));
    let (ticket, first) = bench.asked(is_open).unwrap();
    bench.now = 1_000;
    bench.step(Event::Answered(ticket, Answer::Open(Err(lost()))));
    bench.run_until(2_000);
    let again = bench.asked.iter().find(|(_, request)| is_open(request)).unwrap();
    assert_eq!(again.1, first);
    bench.open();
    assert_eq!(bench.engine.live.as_ref().unwrap().deadline.at(), at(8_500));
}

/// R20: who sees another group than the others moves nothing of its own will.
#[test]
fn nothing_is_shed_while_views_differ() {
    for (differs, sheds) in [(1, false), (0, true)] {
        let mut bench = Bench::new();
        bench.list(&["a", "b"]);
        bench.join();
        bench.see(&[], &[]);
        let holds =
            vec![Claimed::Granted(bench.hold("a", 1)), Claimed::Granted(bench.hold("b", 1))];
        bench.answer(is_claim, Answer::Claim(Ok(holds)));
        let held = [("a", Some(("me", 1))), ("b", Some(("me", 1)))];
        // The first look shows the other member, after the second we know what we say of both.
        let mut drained = false;
        for _ in 0..3 {
            bench.step(Event::Hint);
            bench.now += 20;
            bench.step(Event::Tick);
            if !bench.asked.iter().any(|(_, request)| is_look(request)) {
                continue;
            }
            bench.engine.view ^= differs;
            let view = bench.engine.view;
            bench.see(&["other"], &held);
            bench.engine.view = if differs == 1 { view ^ 1 } else { bench.engine.view };
            drained |= bench.did(|effect| matches!(effect, Effect::Drain { why: "balance", .. }));
        }
        assert_eq!(drained, sheds);
    }
}

#[test]
fn a_resource_that_knows_a_newer_epoch_raises_the_floor() {
    let mut bench = Bench::holding();
    let (epoch, newest) = (Epoch::new(5).unwrap(), Epoch::new(40).unwrap());
    let duty = DutyId::new("d").unwrap();
    bench.step(Event::Fenced { duty, epoch, newest });
    assert!(bench.did(is_revoke));
    bench.stopped("d", 5);
    bench.answer(is_release, Answer::Release(Ok(vec![Released::Freed])));
    let (_, request) = bench.asked(is_claim).unwrap();
    let Request::Claim { wants, .. } = request else { unreachable!() };
    assert_eq!(wants[0].floor, newest);
}
