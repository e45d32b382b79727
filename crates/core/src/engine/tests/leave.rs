//! Leaving a group.

use super::super::*;
use super::bench::*;
use crate::Ttl;
use crate::store::{Closed, KeptAlive};

/// A member that cannot close because of a pending claim waits for it without a busy loop.
#[test]
fn leaving_waits_for_a_claim_on_its_way() {
    let mut bench = Bench::holding();
    bench.list(&["d", "e"]);
    bench.look(&[], &[("d", Some(("me", 5))), ("e", None)]);
    assert!(bench.asked.iter().any(|(_, request)| is_claim(request)));
    bench.step(EngineEvent::Leave);
    bench.stopped("d", 5);
    assert!(bench.asked(is_close).is_none());
    let (end, mut ticks) = (bench.now + 1_000, 0);
    while bench.engine.wake_at() < at(end) {
        bench.tick_at(bench.engine.wake_at().as_nanos() / 1_000_000 + 1);
        ticks += 1;
    }
    assert!(ticks < 20, "{ticks} ticks in a second");
    bench.answer(is_claim, StoreResponse::Claim(Err(lost())));
    assert!(bench.asked(is_close).is_some());
}

/// R18: stop, then release, then close.
#[test]
fn leaving_drains_before_it_closes() {
    let mut bench = Bench::holding();
    bench.step(EngineEvent::Leave);
    assert!(bench.did(|effect| matches!(effect, Effect::Drain { why: StopReason::Leave, .. })));
    assert!(bench.asked(is_close).is_none());
    bench.stopped("d", 5);
    bench.answer(is_close, StoreResponse::Close(Ok(Closed::Closed)));
    assert!(bench.did(|effect| *effect == Effect::End(EngineExit::Left)));
}

/// The keep-alive with the last status may reach the store after the request that closes.
#[test]
fn a_session_that_this_member_closes_is_not_lost() {
    let mut bench = Bench::holding();
    bench.step(EngineEvent::Leave);
    bench.tick_at(bench.now + 1);
    let (ticket, _) = bench.asked(is_keep).unwrap();
    bench.stopped("d", 5);
    assert!(bench.asked.iter().any(|(_, request)| is_close(request)));
    bench.step(EngineEvent::Answered(ticket, StoreResponse::KeepAlive(Ok(KeptAlive::Ended))));
    assert!(!bench.recorded(Change::SessionLost));
    bench.answer(is_close, StoreResponse::Close(Ok(Closed::Closed)));
    assert!(bench.did(|effect| *effect == Effect::End(EngineExit::Left)));
}

/// A look that was on its way shows a document that this member would change.
#[test]
fn a_member_that_closes_its_session_writes_no_settings() {
    let mut bench = Bench::new();
    bench.list(&["d"]);
    bench.join();
    assert!(bench.asked.iter().any(|(_, request)| is_look(request)));
    bench.step(EngineEvent::Leave);
    bench.group.settings = Some((Ttl::new(Duration::from_secs(5)).unwrap(), Layout::Targets));
    bench.see(&[], &[]);
    assert!(bench.asked(is_settle).is_none());
    bench.answer(is_close, StoreResponse::Close(Ok(Closed::Closed)));
    assert!(bench.did(|effect| *effect == Effect::End(EngineExit::Left)));
}
