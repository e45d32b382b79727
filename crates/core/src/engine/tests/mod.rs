//! Rules that one member keeps by itself, with responses supplied by the tests. The simulator tests
//! how members interact with each other and with a store.

mod agree;
mod bench;
mod claim;
mod foreign;
mod hanging;
mod leave;
mod name;
mod operator;
mod picture;

use super::*;
use crate::store::{Claimed, Closed, HoldFate, KeptAlive, Opened, Released};
use bench::*;

/// R5, R6: 10 s * 0.9 - 0.5 s after the session was opened, whatever the store responds.
#[test]
fn work_is_cancelled_at_the_deadline_without_the_store() {
    let mut bench = Bench::holding();
    let before = bench.run_until(8_499);
    assert!(!before.iter().any(is_revoke));
    let after = bench.run_until(8_600);
    assert!(after.iter().any(is_revoke));
}

/// R5: the deadline depends on when the request was sent, not on when its response arrived.
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

/// R7: a step that is late by more than the margin suspends effects until the store has answered a
/// request sent after the pause.
#[test]
fn a_pause_suspends_until_the_store_has_confirmed() {
    let mut bench = Bench::holding();
    bench.run_until(3_400);
    bench.tick_at(5_500);
    assert!(bench.did(|effect| *effect == Effect::Suspend) && bench.recorded(Change::Suspended));
    // This one was sent before the pause.
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

/// R9, R21: nothing of an ended session is used, and a member that saw store errors waits.
#[test]
fn an_ended_session_loses_everything_and_waits_before_it_claims() {
    let mut bench = Bench::holding();
    let first = bench.nonce();
    bench.run_until(3_400);
    bench.answer(is_keep, StoreResponse::KeepAlive(Ok(KeptAlive::Ended)));
    assert!(bench.did(is_revoke) && bench.recorded(Change::SessionLost));
    bench.stopped("d", 5);
    bench.open();
    assert_ne!(bench.nonce(), first);
    bench.see(&[], &[("d", None)]);
    let waits = |effect: &Effect| match effect {
        Effect::Record(record) => record.reason.starts_with("1 duty: waiting for previous leases"),
        _ => false,
    };
    assert!(bench.did(waits), "{:?}", bench.done);
    while bench.now < 3_400 + 10_300 {
        bench.run_until(bench.now + 500);
        if bench.asked.iter().any(|(_, request)| is_keep(request)) {
            bench.keep(&[]);
        }
        let early = bench.now < 3_400 + 10_200;
        assert!(!early || bench.asked(is_claim).is_none(), "it claimed before the TTL was over");
    }
    bench.see(&[], &[("d", None)]);
    let (_, request) = bench.asked(is_claim).unwrap();
    let StoreRequest::Claim { wants, .. } = request else { unreachable!() };
    // R2: above every epoch that this member knows.
    assert_eq!(wants[0].floor, Epoch::new(5).unwrap());
}

/// Foreign members give no hints: only the next look shows what they release.
#[test]
fn beside_a_foreign_member_every_look_asks_who_holds_what() {
    let held = [("d", Some(("me", 5)))];
    let asks = |other: &str| {
        let mut bench = Bench::holding();
        bench.look(&[other], &held);
        let next = |_| {
            bench.run_until(bench.now + 1_100);
            let looks = bench.asked.iter().filter(|(_, request)| is_look(request));
            let asks = looks
                .map(|(_, request)| matches!(request, StoreRequest::Look { holders: true, .. }));
            let asks = asks.collect::<Vec<_>>();
            bench.see(&[other], &held);
            assert_eq!(asks.len(), 1);
            asks[0]
        };
        (0..4).map(next).collect::<Vec<_>>()
    };
    assert_eq!(asks("foreign"), [true; 4]);
    assert!(asks("other").contains(&false));
}

/// R17: a claim whose response is lost is looked up, and a grant from it is released before the
/// duty is claimed again.
#[test]
fn an_unknown_claim_is_never_repeated_blindly() {
    let mut bench = Bench::new();
    bench.list(&["d"]);
    bench.join();
    bench.see(&[], &[("d", None)]);
    bench.answer(is_claim, StoreResponse::Claim(Err(lost())));
    assert!(bench.asked(is_claim).is_none());
    bench.run_until(700);
    bench.see(&[], &[("d", Some(("me", 5)))]);
    assert!(!bench.did(|effect| matches!(effect, Effect::Assign { .. })));
    let (ticket, request) = bench.asked(is_release).unwrap();
    let StoreRequest::Release { holds, .. } = request else { unreachable!() };
    assert_eq!(holds[0].epoch, Epoch::new(5).unwrap());
    bench.step(EngineEvent::Answered(ticket, StoreResponse::Release(Ok(vec![Released::Freed]))));
    assert!(bench.asked(is_claim).is_some());
}

/// R17: a release whose response is lost may still arrive: no work starts again under that epoch.
#[test]
fn an_unknown_release_is_repeated_until_it_is_known() {
    let mut bench = Bench::holding();
    bench.list(&[]);
    assert!(bench.did(|effect| matches!(effect, Effect::Drain { why: StopReason::Gone, .. })));
    assert!(bench.asked(is_release).is_none(), "released before the work had stopped");
    bench.stopped("d", 5);
    bench.answer(is_release, StoreResponse::Release(Err(lost())));
    bench.list(&["d"]);
    bench.asked.retain(|(_, request)| !is_claim(request));
    bench.run_until(700);
    assert!(bench.asked(is_claim).is_none());
    bench.answer(is_release, StoreResponse::Release(Ok(vec![Released::Already])));
    assert!(bench.recorded(Change::Released));
}

/// R17: a late response concerns the named hold, not the next one.
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
    bench.step(EngineEvent::Answered(late, StoreResponse::Release(Ok(vec![Released::NotYours]))));
    assert!(!bench.recorded(Change::Released));
    let held = bench.engine.holds.values().map(EngineHold::epoch).collect::<Vec<_>>();
    assert_eq!(held, [Epoch::new(6).unwrap()]);
}

#[test]
fn work_that_does_not_drain_in_time_is_cancelled() {
    let mut bench = Bench::holding();
    bench.list(&[]);
    bench.run_until(3_400);
    bench.keep(&[HoldFate::Kept]);
    let effects = bench.run_until(5_100);
    let over =
        |effect: &Effect| matches!(effect, Effect::Revoke { why: StopReason::DrainTimeout, .. });
    assert!(effects.iter().any(over));
}

#[test]
fn the_last_member_refuses_to_drain() {
    let mut bench = Bench::holding();
    bench.step(EngineEvent::Drain);
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
        bench.step(EngineEvent::Tick);
        let document = bench.document();
        let view = GroupView { holders: Some(Vec::new()), document, ..GroupView::default() };
        bench.answer(is_look, StoreResponse::Look(Ok(view)));
        bench.answer(is_open, StoreResponse::Open(Ok(opened)));
        let Some(Effect::End(EngineExit::Failed(problem))) = bench.done.last() else {
            panic!("{:?}", bench.done)
        };
        assert_eq!(problem.code, code);
    }
}

/// R17: an open request whose response is lost is repeated with the same nonce, and the store may
/// have counted since the first time.
#[test]
fn an_unknown_opening_is_repeated_under_its_nonce() {
    let mut bench = Bench::new();
    bench.list(&["d"]);
    bench.step(EngineEvent::Tick);
    let document = bench.document();
    let view = GroupView { holders: Some(Vec::new()), document, ..GroupView::default() };
    bench.answer(is_look, StoreResponse::Look(Ok(view)));
    let (ticket, first) = bench.asked(is_open).unwrap();
    bench.now = 1_000;
    bench.step(EngineEvent::Answered(ticket, StoreResponse::Open(Err(lost()))));
    bench.run_until(2_000);
    let again = bench.asked.iter().find(|(_, request)| is_open(request)).unwrap();
    assert_eq!(again.1, first);
    bench.open();
    assert_eq!(bench.engine.live.as_ref().unwrap().deadline.at(), at(8_500));
}

/// R20, R25: a member whose view differs from the others' sheds nothing, nor does a member beside
/// one of another revision.
#[test]
fn nothing_is_shed_while_views_or_revisions_differ() {
    for (differs, revision, sheds) in [(1, None, false), (0, Some("v1"), false), (0, None, true)] {
        let mut bench = Bench::new();
        bench.engine.settings.revision = revision.map(|word| Label::new(word).unwrap());
        bench.list(&["a", "b"]);
        bench.join();
        bench.see(&[], &[]);
        let holds =
            vec![Claimed::Granted(bench.hold("a", 1)), Claimed::Granted(bench.hold("b", 1))];
        bench.answer(is_claim, StoreResponse::Claim(Ok(holds)));
        let held = [("a", Some(("me", 1))), ("b", Some(("me", 1)))];
        // The first look shows the other member; after the second one both views are published.
        let mut drained = false;
        for _ in 0..3 {
            bench.step(EngineEvent::Hint);
            bench.now += 20;
            bench.step(EngineEvent::Tick);
            if !bench.asked.iter().any(|(_, request)| is_look(request)) {
                continue;
            }
            bench.engine.view ^= differs;
            let view = bench.engine.view;
            bench.see(&["other"], &held);
            bench.engine.view = if differs == 1 { view ^ 1 } else { bench.engine.view };
            drained |= bench
                .did(|effect| matches!(effect, Effect::Drain { why: StopReason::Balance, .. }));
        }
        assert_eq!(drained, sheds);
    }
}

#[test]
fn a_resource_that_knows_a_newer_epoch_raises_the_floor() {
    let mut bench = Bench::holding();
    let (epoch, newest) = (Epoch::new(5).unwrap(), Epoch::new(40).unwrap());
    let duty = DutyId::new("d").unwrap();
    bench.step(EngineEvent::Fenced { duty, epoch, newest });
    assert!(bench.did(is_revoke));
    bench.stopped("d", 5);
    bench.answer(is_release, StoreResponse::Release(Ok(vec![Released::Freed])));
    let (_, request) = bench.asked(is_claim).unwrap();
    let StoreRequest::Claim { wants, .. } = request else { unreachable!() };
    assert_eq!(wants[0].floor, newest);
}

/// R5: a keep-alive sent after a claim does not name the duties that the claim brings, so it does
/// not extend them where holds have TTLs of their own.
#[test]
fn a_grant_stands_no_longer_than_the_session_did_when_it_was_asked_for() {
    let mut bench = Bench::new();
    bench.list(&["d"]);
    bench.join();
    bench.see(&[], &[("d", None)]);
    bench.run_until(3_400);
    bench.keep(&[]);
    bench.grant("d", 5);
    let Some(Effect::Assign { deadline, .. }) =
        bench.done.iter().find(|effect| matches!(effect, Effect::Assign { .. }))
    else {
        panic!("{:?}", bench.done)
    };
    assert_eq!(deadline.at(), at(8_500));
}

/// R17: a hold that is older than the claim comes from a claim whose response was lost.
#[test]
fn what_was_held_already_is_given_back_first() {
    let mut bench = Bench::new();
    bench.list(&["d"]);
    bench.join();
    bench.see(&[], &[("d", None)]);
    let already = Claimed::Already(bench.hold("d", 5));
    bench.answer(is_claim, StoreResponse::Claim(Ok(vec![already])));
    assert!(!bench.did(|effect| matches!(effect, Effect::Assign { .. })));
    assert!(bench.asked(is_release).is_some());
}

/// R24: a keep-alive may be the first to show that a release has happened.
#[test]
fn a_release_is_recorded_also_when_a_keep_alive_tells_it() {
    let mut bench = Bench::holding();
    bench.run_until(3_400);
    bench.list(&[]);
    bench.stopped("d", 5);
    bench.keep(&[HoldFate::Lost]);
    assert!(bench.recorded(Change::Released), "{:?}", bench.done);
    bench.answer(is_release, StoreResponse::Release(Ok(vec![Released::Already])));
    assert!(!bench.recorded(Change::Released));
    // A look sent before does not bring it back.
    bench.see(&[], &[("d", Some(("me", 5)))]);
    assert!(bench.asked(is_release).is_none());
}

#[test]
fn who_drains_without_a_session_has_nothing_to_hand_over() {
    let mut bench = Bench::new();
    bench.step(EngineEvent::Tick);
    bench.answer(is_look, StoreResponse::Look(Err(lost())));
    bench.step(EngineEvent::Drain);
    assert!(bench.did(|effect| *effect == Effect::End(EngineExit::Left)));
}

/// After a change of the group's settings, a member leaves in order: the work stops first (R10).
#[test]
fn settings_that_were_changed_end_a_member_after_its_work() {
    let mut bench = Bench::holding();
    bench.group.settings = Some((bench.engine.settings.ttl, Layout::Shards(3)));
    let document = bench.document();
    bench.step(EngineEvent::Hint);
    bench.now += 20;
    bench.step(EngineEvent::Tick);
    let view = GroupView { members: Vec::new(), holders: Some(Vec::new()), document };
    bench.answer(is_look, StoreResponse::Look(Ok(view)));
    assert!(bench.recorded(Change::JoinFailed) && bench.asked(is_close).is_none());
    bench.stopped("d", 5);
    bench.answer(is_close, StoreResponse::Close(Ok(Closed::Closed)));
    let Some(Effect::End(EngineExit::Failed(problem))) = bench.done.last() else {
        panic!("{:?}", bench.done)
    };
    assert_eq!(problem.code, Code::SettingsDiffer);
}

#[test]
fn a_document_that_cannot_be_read_ends_nobody() {
    let mut bench = Bench::holding();
    bench.step(EngineEvent::Hint);
    bench.now += 20;
    bench.step(EngineEvent::Tick);
    let mut document = bench.document();
    document.document = crate::Document::new("nonsense").unwrap();
    let view = GroupView { members: Vec::new(), holders: Some(Vec::new()), document };
    bench.answer(is_look, StoreResponse::Look(Ok(view)));
    assert!(bench.recorded(Change::LookFailed));
    assert!(!bench.did(is_revoke) && !bench.did(|e| matches!(e, Effect::End(_))));
}

/// R7: a paused process cannot report progress.
#[test]
fn a_pause_is_not_a_lack_of_progress() {
    let mut bench = Bench::holding();
    bench.engine.settings.progress = Some(Duration::from_millis(1_500));
    bench.engine.due = at(0);
    bench.tick_at(3_000);
    assert!(bench.recorded(Change::Suspended) && !bench.did(is_revoke), "{:?}", bench.done);
    bench.tick_at(4_600);
    assert!(bench.did(|e| matches!(e, Effect::Revoke { why: StopReason::NoProgress, .. })));
}

/// R20: a free duty may always be claimed, a little later, when its planned holder does not.
#[test]
fn a_duty_that_nobody_takes_is_taken_by_another() {
    let mut bench = Bench::new();
    bench.list(&["a", "b"]);
    bench.join();
    bench.see(&["other"], &[("a", None), ("b", None)]);
    let (ticket, request) = bench.asked(is_claim).unwrap();
    let StoreRequest::Claim { wants, .. } = request else { unreachable!() };
    assert_eq!(wants.len(), 1, "one for each");
    let (mine, other) = if wants[0].duty == key("a") { ("a", "b") } else { ("b", "a") };
    let hold = bench.hold(mine, 1);
    let answer = StoreResponse::Claim(Ok(vec![Claimed::Granted(hold)]));
    bench.step(EngineEvent::Answered(ticket, answer));
    bench.run_until(900);
    assert!(bench.asked(is_claim).is_none(), "the other one has its time");
    bench.run_until(2_500);
    let (_, request) = bench.asked(is_claim).unwrap();
    let StoreRequest::Claim { wants, .. } = request else { unreachable!() };
    assert_eq!(wants[0].duty, key(other));
}

/// R7: a grant is released unstarted while the process does not know how long it was paused.
#[test]
fn nothing_begins_between_a_pause_and_its_confirmation() {
    let mut bench = Bench::holding();
    bench.list(&["d", "e"]);
    bench.now += 20;
    bench.step(EngineEvent::Tick);
    bench.see(&[], &[("d", Some(("me", 5))), ("e", None)]);
    bench.tick_at(2_500);
    assert!(bench.recorded(Change::Suspended));
    bench.grant("e", 1);
    assert!(!bench.did(|effect| matches!(effect, Effect::Assign { .. })));
    // Nor is it claimed again and again in the meantime.
    bench.answer(is_release, StoreResponse::Release(Ok(vec![Released::Freed])));
    bench.look(&[], &[("d", Some(("me", 5))), ("e", None)]);
    assert!(bench.asked(is_claim).is_none());
}

/// A duty whose cancelled work still runs is not started again.
#[test]
fn work_that_has_not_stopped_is_not_begun_again() {
    let mut bench = Bench::holding();
    bench.run_until(3_400);
    bench.keep(&[HoldFate::Lost]);
    bench.now += 20;
    bench.step(EngineEvent::Tick);
    bench.see(&[], &[("d", None)]);
    assert!(bench.asked(is_claim).is_none());
    bench.stopped("d", 5);
    bench.run_until(bench.now + 1_100);
    bench.see(&[], &[("d", None)]);
    assert!(bench.asked(is_claim).is_some());
}

/// A hold released after a look was sent is not taken for ours because that look still shows it.
#[test]
fn a_look_does_not_show_what_happened_after_it_was_sent() {
    let mut bench = Bench::holding();
    bench.step(EngineEvent::Hint);
    bench.now += 20;
    bench.step(EngineEvent::Tick);
    assert!(bench.asked.iter().any(|(_, request)| is_look(request)));
    bench.list(&[]);
    bench.stopped("d", 5);
    bench.answer(is_release, StoreResponse::Release(Ok(vec![Released::Freed])));
    bench.see(&[], &[("d", Some(("me", 5)))]);
    assert!(bench.asked(is_release).is_none(), "it gave back what it did not have");
}
