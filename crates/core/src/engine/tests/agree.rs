//! Members with different TTLs. That of the tested member is 10 s.

use super::super::*;
use super::bench::*;
use crate::Ttl;
use crate::store::{HoldFate, KeptAlive};

fn ttl(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).unwrap()
}

/// Returns the TTL that the member writes into a document with this one, beside these others.
fn written(before: u64, others: &[&str]) -> Option<Ttl> {
    let mut bench = Bench::new();
    bench.list(&["d"]);
    bench.join();
    bench.group.settings = Some((ttl(before), Layout::Targets));
    bench.see(others, &[]);
    let (_, request) = bench.asked(is_settle)?;
    let StoreRequest::Settle { expected, document, .. } = request else { unreachable!() };
    let group = GroupConfig::read(&crate::store::GroupDocument { version: expected, document });
    group.unwrap().settings.map(|(ttl, _)| ttl)
}

#[test]
fn the_document_gets_the_longest_ttl() {
    assert_eq!(written(10, &["other"]), None);
    assert_eq!(written(10, &["short", "unaware"]), None);
    assert_eq!(written(10, &["other", "long"]), Some(ttl(20)));
    assert_eq!(written(20, &["other", "long"]), None);
    // The last member with the longer one has left.
    assert_eq!(written(20, &["other"]), Some(ttl(10)));
    assert_eq!(written(5, &["unaware"]), Some(ttl(10)));
}

/// A member of an earlier version leaves when the document has another TTL than its own.
#[test]
fn the_ttl_of_an_earlier_version_stays() {
    assert_eq!(written(20, &["older"]), None);
    let mut bench = Bench::new();
    bench.step(EngineEvent::Tick);
    bench.group.settings = Some((ttl(5), Layout::Targets));
    let (members, holders) = (vec![member("older", 9, 0)], Some(Vec::new()));
    let view = GroupView { members, holders, document: bench.document() };
    bench.answer(is_look, StoreResponse::Look(Ok(view)));
    let Some(Effect::End(EngineExit::Failed(problem))) = bench.done.last() else {
        panic!("{:?}", bench.done)
    };
    assert_eq!(problem.code, Code::SettingsDiffer);
    let text = problem.to_string();
    assert!(text.contains("TTL is 5s, this instance's is 10s, and older runs"), "{text}");
}

/// R21: others would not wait long enough after a reset.
#[test]
fn nothing_is_claimed_before_all_know_of_a_longer_ttl() {
    let mut bench = Bench::new();
    bench.list(&["a", "b"]);
    bench.join();
    let free = [("a", None), ("b", None)];
    bench.see(&["unaware", "other"], &free);
    assert!(bench.asked(is_claim).is_none());
    bench.look(&["short", "other"], &free);
    assert!(bench.asked(is_claim).is_some());
}

/// R21: the store may have forgotten the session of a holder with a longer TTL.
#[test]
fn after_a_reset_the_longest_ttl_is_waited_for() {
    let waits = |seen: &[&[&str]], then: &[&str]| {
        let mut bench = Bench::holding();
        for others in seen {
            bench.look(others, &[("d", Some(("me", 5)))]);
        }
        bench.run_until(3_400);
        bench.answer(is_keep, StoreResponse::KeepAlive(Ok(KeptAlive::Ended)));
        bench.stopped("d", 5);
        bench.open();
        bench.see(then, &[("d", None)]);
        bench.engine.waiting.unwrap().since(at(3_400))
    };
    let seconds = Duration::from_secs_f64;
    assert_eq!(waits(&[&["short"]], &[]), seconds(10.2));
    assert_eq!(waits(&[&["long"]], &[]), seconds(20.4));
    // It left in order before the reset.
    assert_eq!(waits(&[&["long"], &[]], &[]), seconds(10.2));
    // It joined while this member could not look.
    assert_eq!(waits(&[], &["long"]), seconds(20.4));
}

/// R21: a store that was adopted has dropped the sessions of members that still work. A look that
/// shows this makes the wait for them no shorter, and the session is verified at once.
#[test]
fn a_look_after_a_reset_makes_no_wait_shorter() {
    let mut bench = Bench::holding();
    bench.look(&["long"], &[("d", Some(("me", 5)))]);
    bench.keep(&[HoldFate::Kept]);
    bench.asked.clear();
    bench.run_until(1_000);
    bench.look_at_nobody(&[("d", None)]);
    assert!(!bench.recorded(Change::GroupTtl));
    assert!(bench.asked(is_settle).is_none(), "the document has the longer TTL");
    let ended = bench.now;
    bench.answer(is_keep, StoreResponse::KeepAlive(Ok(KeptAlive::Ended)));
    let until = bench.engine.waiting.unwrap();
    assert_eq!(until.since(at(ended)), ttl(20).get() * 51 / 50);
}

/// R21: others may have joined between the first two times that a member read the group. Until a
/// look has shown its session, the document says what it has to wait for.
#[test]
fn before_a_complete_look_the_document_says_how_long_to_wait() {
    let mut bench = Bench::new();
    bench.list(&["d"]);
    bench.join();
    bench.group.settings = Some((ttl(20), Layout::Targets));
    bench.look_at_nobody(&[]);
    assert!(bench.asked(is_settle).is_none());
    let ended = bench.now;
    bench.answer(is_keep, StoreResponse::KeepAlive(Ok(KeptAlive::Ended)));
    assert_eq!(bench.engine.waiting.unwrap().since(at(ended)), ttl(20).get() * 51 / 50);
}

/// R21: during the wait, other members that lost their sessions read the document, too.
#[test]
fn a_member_that_waits_leaves_the_longer_ttl_in_the_document() {
    let mut bench = Bench::holding();
    bench.run_until(3_400);
    bench.answer(is_keep, StoreResponse::KeepAlive(Ok(KeptAlive::Ended)));
    bench.stopped("d", 5);
    bench.open();
    bench.group.settings = Some((ttl(20), Layout::Targets));
    bench.see(&[], &[("d", None)]);
    assert_eq!(bench.engine.waiting, Some(at(3_400).plus(ttl(20).get() * 51 / 50)));
    assert!(bench.asked(is_settle).is_none());
    bench.asked.clear();
    // Nobody with that TTL is left, and the wait is over.
    bench.engine.waiting = None;
    bench.look(&[], &[("d", None)]);
    assert!(bench.asked(is_settle).is_some());
}

/// What a member knows is in its note at once, because others wait for it.
#[test]
fn a_longer_ttl_is_repeated_at_once() {
    let mut bench = Bench::holding();
    bench.look(&["long"], &[("d", Some(("me", 5)))]);
    assert!(bench.recorded(Change::GroupTtl), "{:?}", bench.done);
    let (_, request) = bench.asked(is_keep).unwrap();
    let StoreRequest::KeepAlive { note: Some(note), .. } = request else { panic!("{request:?}") };
    let said = MemberStatus::read(&note).unwrap();
    assert_eq!((said.ttl, said.longest), (Some(ttl(10)), Some(ttl(20))));
}
