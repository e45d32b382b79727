//! Foreign members, and stores that others modify directly.

use std::collections::BTreeMap;

use super::bench::*;
use super::*;
use crate::roster::foreign_owner;
use crate::store::{Claimed, CurrentHolder, HoldFate, KeptAlive, Released};
use crate::{Hold, Mark, Record, Target};

/// A store with other members that do nothing by themselves.
struct World {
    bench: Bench,
    others: Vec<&'static str>,
    /// Holder and epoch of each duty; a duty without a holder is free.
    holders: BTreeMap<String, Option<String>>,
    /// Duties that looks do not show.
    hidden: Vec<String>,
    epoch: u64,
    claims: usize,
    renewals: usize,
    done: Vec<Effect>,
}

impl World {
    /// Creates a member that holds all of these duties alone.
    fn new(duties: &[String]) -> Self {
        let mut bench = Bench::new();
        bench.list(&duties.iter().map(String::as_str).collect::<Vec<_>>());
        bench.join();
        let holders = duties.iter().map(|duty| (duty.clone(), None)).collect();
        let (others, hidden, done) = (Vec::new(), Vec::new(), Vec::new());
        Self { bench, others, holders, hidden, epoch: 5, claims: 0, renewals: 0, done }
    }

    /// Advances time by this many milliseconds; work stops as soon as it is asked to.
    fn pass(&mut self, millis: u64) {
        let end = self.bench.now + millis;
        while self.bench.engine.wake_at() < at(end) {
            let wake = self.bench.engine.wake_at().as_nanos() / 1_000_000 + 1;
            self.bench.tick_at(wake.max(self.bench.now));
            self.settle();
        }
        self.bench.now = end;
    }

    fn settle(&mut self) {
        loop {
            let done = std::mem::take(&mut self.bench.done);
            self.done.extend(done.iter().cloned());
            for effect in done {
                if let Effect::Drain { duty, epoch, .. } | Effect::Revoke { duty, epoch, .. } =
                    effect
                {
                    self.bench.step(EngineEvent::Stopped { duty, epoch, how: WorkOutcome::Asked });
                    self.done.append(&mut self.bench.done);
                }
            }
            if self.bench.asked.is_empty() {
                return;
            }
            let (ticket, request) = self.bench.asked.remove(0);
            self.answer(ticket, request);
        }
    }

    fn answer(&mut self, ticket: Ticket, request: StoreRequest) {
        let answer = match request {
            StoreRequest::Look { .. } => {
                self.bench.asked.push((ticket, request));
                let shown = self.holders.iter().filter(|(duty, _)| !self.hidden.contains(duty));
                let of = |name| (name, self.epoch);
                let shown = shown.map(|(duty, held)| (duty.as_str(), held.as_deref().map(of)));
                let shown: Vec<_> = shown.collect();
                let said = self.bench.engine.live.as_ref().unwrap().said.clone();
                return self.bench.see_me(said, &self.others, &shown);
            }
            StoreRequest::Claim { wants, .. } => {
                self.claims += wants.len();
                let claimed = wants.iter().map(|want| self.claim(want.duty.id.as_str()));
                StoreResponse::Claim(Ok(claimed.collect()))
            }
            StoreRequest::Release { holds, .. } => {
                for hold in &holds {
                    self.holders.insert(hold.duty.id.as_str().to_owned(), None);
                }
                StoreResponse::Release(Ok(vec![Released::Freed; holds.len()]))
            }
            StoreRequest::KeepAlive { holds, .. } => {
                self.renewals += 1;
                let kept = |hold: &Hold| match self.holders[hold.duty.id.as_str()].as_deref() {
                    Some("me") => HoldFate::Kept,
                    _ => HoldFate::Lost,
                };
                let holds = holds.iter().map(kept).collect();
                StoreResponse::KeepAlive(Ok(KeptAlive::Kept { mark: Mark(0), holds }))
            }
            other => panic!("{other:?}"),
        };
        self.bench.step(EngineEvent::Answered(ticket, answer));
    }

    fn claim(&mut self, duty: &str) -> Claimed {
        if let Some(Some(holder)) = self.holders.get(duty) {
            let remaining = Duration::from_millis(TTL);
            return Claimed::HeldBy(Some(CurrentHolder { instance: instance(holder), remaining }));
        }
        self.holders.insert(duty.to_owned(), Some("me".to_owned()));
        Claimed::Granted(self.bench.hold(duty, self.epoch))
    }

    /// Returns the duties released since the last call.
    fn given_away(&mut self) -> Vec<String> {
        let effects = std::mem::take(&mut self.done).into_iter();
        let drained = |effect| match effect {
            Effect::Drain { duty, .. } => Some(duty.as_str().to_owned()),
            _ => None,
        };
        effects.filter_map(drained).collect()
    }

    /// Advances time, at most this many seconds, until something is released.
    fn next_given(&mut self, seconds: u64) -> Vec<String> {
        let mut given = Vec::new();
        for _ in 0..seconds {
            self.pass(1_000);
            given = self.given_away();
            if !given.is_empty() {
                break;
            }
        }
        given
    }

    fn take(&mut self, duty: &str, holder: &str) {
        self.holders.insert(duty.to_owned(), Some(holder.to_owned()));
    }

    fn records(&self, change: Change) -> Vec<&Record> {
        fn of(effect: &Effect, change: Change) -> Option<&Record> {
            match effect {
                Effect::Record(record) if record.change == change => Some(record),
                _ => None,
            }
        }
        self.done.iter().filter_map(|effect| of(effect, change)).collect()
    }
}

/// Finds `each` duties that the foreign rule assigns to each of these members; sorted.
fn preferred<const N: usize>(members: [&str; N], each: usize) -> [Vec<String>; N] {
    let all = members.map(instance);
    let mut found = [const { Vec::new() }; N];
    for n in 0.. {
        let name = format!("{n}-{}", n * 7919);
        let owner = foreign_owner(&DutyId::new(name.as_str()).unwrap(), &all).unwrap();
        if found[owner].len() < each {
            found[owner].push(name);
        }
        if found.iter().all(|names: &Vec<_>| names.len() == each) {
            found.iter_mut().for_each(|names| names.sort());
            return found;
        }
    }
    unreachable!()
}

/// Creates a member that has long held all of these when a foreign one joins.
fn beside_a_foreign_member(duties: &[String]) -> World {
    let mut world = World::new(duties);
    world.pass(25_000);
    world.given_away();
    world.others = vec!["foreign"];
    world
}

/// One foreign heartbeat does not stop the balance among our own members.
#[test]
fn beside_a_foreign_member_duties_go_to_whom_its_rule_prefers() {
    let [theirs, mine, others] = preferred(["foreign", "me", "other"], 2);
    let mut world = World::new(&[&theirs[..], &mine, &others].concat());
    world.pass(25_000);
    assert!(world.holders.values().all(|holder| holder.as_deref() == Some("me")));
    world.given_away();
    world.others = vec!["foreign", "other"];
    world.pass(5_000);
    // Our own member gets its duties at once; a new foreign member may not be ready.
    assert_eq!(world.given_away(), others);
    others.iter().for_each(|duty| world.take(duty, "other"));
    // A foreign member is tried with one duty. It gets the rest after it has taken that one.
    world.pass(8_000);
    assert_eq!(world.given_away(), theirs[..1]);
    world.take(&theirs[0], "foreign");
    world.pass(3_000);
    assert_eq!(world.given_away(), theirs[1..]);
    world.take(&theirs[1], "foreign");
    // Every duty is where it should be.
    world.pass(60_000);
    assert_eq!(world.given_away(), [""; 0]);
    assert_eq!(mine.iter().filter(|duty| world.holders[*duty].as_deref() == Some("me")).count(), 2);
}

/// A foreign heartbeat without a member that claims costs one duty a short time, ever more rarely.
#[test]
fn what_a_foreign_member_does_not_take_comes_back_and_stays() {
    let [theirs, mine] = preferred(["foreign", "me"], 20);
    let mut world = beside_a_foreign_member(&[theirs, mine].concat());
    let mut given = Vec::new();
    for _ in 0..3 {
        world.pass(300_000);
        given.push(world.given_away().len());
        assert!(world.holders.values().all(|holder| holder.as_deref() == Some("me")));
    }
    assert_eq!(given, [3, 1, 1]);
}

#[test]
fn a_foreign_member_that_missed_an_offer_gets_another() {
    let [theirs, mine] = preferred(["foreign", "me"], 3);
    let mut world = beside_a_foreign_member(&[&theirs[..], &mine].concat());
    assert_eq!(world.next_given(20), theirs[..1]);
    world.pass(20_000);
    assert_eq!(world.holders[&theirs[0]].as_deref(), Some("me"));
    // It takes the next one, so the others follow; the missed one comes last.
    for next in [1, 2, 0] {
        assert_eq!(world.next_given(100), theirs[next..=next]);
        world.take(&theirs[next], "foreign");
    }
}

/// Its own lease coming and going does not show that it takes offered duties.
#[test]
fn a_foreign_member_rests_although_what_it_holds_changes() {
    let [theirs, mine] = preferred(["foreign", "me"], 12);
    let mut world = beside_a_foreign_member(&[&theirs[..], &mine].concat());
    assert_eq!(world.next_given(20), theirs[..1]);
    world.take(&theirs[0], "foreign");
    assert_eq!(world.next_given(20).len(), 4);
    world.pass(25_000);
    world.given_away();
    world.hidden.push(theirs[0].clone());
    world.pass(2_000);
    world.hidden.clear();
    world.pass(5_000);
    assert_eq!(world.given_away(), [""; 0]);
    // It ignored several at once, which counts as one: afterwards it is tried with one.
    assert_eq!(world.next_given(40).len(), 1);
}

/// Nobody takes a duty that was paused after it was offered.
#[test]
fn a_foreign_member_gets_another_when_what_it_was_offered_is_paused() {
    let [theirs, mine] = preferred(["foreign", "me"], 2);
    let mut world = beside_a_foreign_member(&[&theirs[..], &mine].concat());
    assert_eq!(world.next_given(20), theirs[..1]);
    let target = |id: &String| Target {
        paused: *id == theirs[0],
        ..Target::new(DutyId::new(id.as_str()).unwrap())
    };
    let targets = world.holders.keys().map(target);
    let listed = EngineEvent::Listed(Listing::new(targets.collect::<Vec<_>>()));
    world.bench.step(listed);
    world.settle();
    assert_eq!(world.next_given(5), theirs[1..]);
}

/// No look shows the duty as held, although a foreign member that just joined holds it.
#[test]
fn a_refused_claim_is_repeated_at_a_pace_and_told_once() {
    let mut world = World::new(&["d".to_owned()]);
    world.hidden = vec!["d".to_owned()];
    world.take("d", "foreign");
    world.pass(8_000);
    assert!((3..=14).contains(&world.claims), "{} claims", world.claims);
    assert_eq!(world.records(Change::AcquireFailed).len(), 1);
    // Another holder is recorded again.
    world.take("d", "another");
    world.pass(3_000);
    assert_eq!(world.records(Change::AcquireFailed).len(), 2);
    // It is claimed soon after its release.
    world.holders.insert("d".to_owned(), None);
    world.pass(1_100);
    assert_eq!(world.holders["d"].as_deref(), Some("me"));
}

/// Somebody has deleted or overwritten the lease: the next look that shows it triggers a renewal.
#[test]
fn a_hold_that_a_look_does_not_show_is_verified_at_once() {
    for holder in [None, Some("foreign".to_owned())] {
        let mut world = World::new(&["d".to_owned(), "e".to_owned()]);
        world.pass(2_000);
        world.others = vec!["foreign"];
        world.pass(2_000);
        // Just after a renewal, the next one is due only in two seconds.
        let mut renewals = world.renewals;
        while world.renewals == renewals {
            world.pass(100);
        }
        renewals = world.renewals;
        world.done.clear();
        world.holders.insert("d".to_owned(), holder);
        world.pass(1_100);
        assert_eq!(world.records(Change::Revoked).len(), 1, "{:?}", world.done);
        assert!(world.renewals <= renewals + 2, "{} renewals", world.renewals - renewals);
    }
}

/// The log has one line for each duty concerned.
#[test]
fn a_renewal_or_release_that_fails_is_told_of_each_duty() {
    let about = |done: &[Effect], change| {
        let of = |effect: &Effect| match effect {
            Effect::Record(record) if record.change == change => record.duty.clone(),
            _ => None,
        };
        done.iter().filter_map(of).count()
    };
    let mut world = World::new(&["d".to_owned(), "e".to_owned()]);
    world.pass(5_000);
    let bench = &mut world.bench;
    let mut done = Vec::new();
    for _ in 0..3 {
        while !bench.asked.iter().any(|(_, request)| is_keep(request)) {
            done.extend(bench.run_until(bench.now + 100));
        }
        bench.answer(is_keep, StoreResponse::KeepAlive(Err(lost())));
        done.append(&mut bench.done);
    }
    assert_eq!(about(&done, Change::RenewFailed), 2);
    bench.list(&[]);
    bench.stopped("d", 5);
    bench.answer(is_release, StoreResponse::Release(Err(lost())));
    assert_eq!(about(&bench.done, Change::ReleaseFailed), 1);
    // The next request names both; one of them was recorded already.
    bench.stopped("e", 5);
    bench.run_until(bench.now + 2_000);
    bench.answer(is_release, StoreResponse::Release(Err(lost())));
    assert_eq!(about(&bench.done, Change::ReleaseFailed), 1);
}
