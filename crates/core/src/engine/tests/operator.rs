//! Operators' orders in the group document.

use super::super::*;
use super::bench::*;
use crate::roster::Pin;
use crate::store::{HoldFate, Released};

/// A drained member hands over and stays. Without a successor it continues, unless told otherwise.
#[test]
fn who_is_drained_hands_over_and_stays() {
    let drains =
        |bench: &Bench| bench.did(|e| matches!(e, Effect::Drain { why: StopReason::Drain, .. }));
    let mine = [("d", Some(("me", 5)))];
    let mut bench = Bench::holding();
    bench.group.drained.insert(instance("me"), DrainMode::HandOver);
    bench.look(&[], &mine);
    assert!(!drains(&bench), "nobody would have it");
    bench.look(&["other"], &mine);
    assert!(drains(&bench));
    bench.stopped("d", 5);
    bench.answer(is_release, StoreResponse::Release(Ok(vec![Released::Freed])));
    bench.look(&["other"], &[("d", None)]);
    bench.run_until(9_000);
    assert!(bench.asked(is_claim).is_none() && bench.asked(is_close).is_none());

    let mut bench = Bench::holding();
    bench.group.drained.insert(instance("me"), DrainMode::Anyway);
    bench.look(&[], &mine);
    assert!(drains(&bench));
}

/// A member that fails whatever the duty gives way to members that do not; later it claims again.
#[test]
fn who_fails_gives_way_to_members_that_do_not() {
    let gives =
        |bench: &Bench| bench.did(|e| matches!(e, Effect::Drain { why: StopReason::Failing, .. }));
    let mine = [("d", Some(("me", 5)))];
    let mut bench = Bench::holding();
    bench.step(EngineEvent::Failing { rest: Duration::from_secs(5) });
    bench.look(&[], &mine);
    bench.look(&["failing-too"], &mine);
    assert!(!gives(&bench), "nobody would do better");
    bench.look(&["other"], &mine);
    assert!(gives(&bench));
    bench.stopped("d", 5);
    bench.answer(is_release, StoreResponse::Release(Ok(vec![Released::Freed])));
    bench.look(&["other"], &[("d", None)]);
    bench.run_until(bench.now + 3_000);
    assert!(bench.asked(is_claim).is_none());
    bench.run_until(bench.now + 3_000);
    bench.look(&[], &[("d", None)]);
    assert!(bench.asked(is_claim).is_some());
}

/// A weight set by an operator overrides the member's own.
#[test]
fn a_given_weight_counts() {
    let mut bench = Bench::new();
    bench.group.weights.insert(instance("other"), 3);
    bench.list(&["a", "b", "c", "d"]);
    bench.join();
    bench.see(&["other"], &[("a", None), ("b", None), ("c", None), ("d", None)]);
    let Some((_, StoreRequest::Claim { wants, .. })) = bench.asked(is_claim) else {
        unreachable!()
    };
    assert_eq!(wants.len(), 1);
}

/// A paused group does nothing, and continues when it is resumed.
#[test]
fn a_paused_group_stops_everything() {
    let mut bench = Bench::holding();
    bench.group.all_paused = true;
    bench.look(&[], &[("d", Some(("me", 5)))]);
    assert!(bench.did(|e| matches!(e, Effect::Drain { why: StopReason::Paused, .. })));
    bench.stopped("d", 5);
    bench.answer(is_release, StoreResponse::Release(Ok(vec![Released::Freed])));
    bench.look(&[], &[("d", None)]);
    assert!(bench.asked(is_claim).is_none());
    bench.group.all_paused = false;
    bench.look(&[], &[("d", None)]);
    assert!(bench.asked(is_claim).is_some());
}

/// A member with room for one duty that just got `d` from another, and to which `a` is pinned.
fn full() -> Bench {
    let mut bench = Bench::new();
    bench.engine.settings.room = 1;
    bench.list(&["a", "d"]);
    bench.join();
    bench.see(&["other"], &[("a", Some(("other", 1))), ("d", Some(("other", 1)))]);
    bench.look(&["other"], &[("a", Some(("other", 1))), ("d", None)]);
    bench.grant("d", 2);
    bench.group.pins.insert(DutyId::new("a").unwrap(), Pin::Instance(instance("me")));
    bench
}

/// A full member makes room for a pinned duty as soon as that is free, even by releasing a duty
/// that it just got: the other member waits for the room, and if each kept its own window the two
/// would never match. Before that nothing moves, because of the window.
#[test]
fn a_pinned_duty_that_is_free_finds_room() {
    let drains =
        |bench: &Bench| bench.did(|e| matches!(e, Effect::Drain { why: StopReason::Pin, .. }));
    let mut bench = full();
    bench.look(&["other"], &[("a", Some(("other", 1))), ("d", Some(("me", 2)))]);
    bench.look(&["other"], &[("a", Some(("other", 1))), ("d", Some(("me", 2)))]);
    assert!(!bench.did(|e| matches!(e, Effect::Drain { .. })), "it came from another just now");
    bench.look(&["other"], &[("a", None), ("d", Some(("me", 2)))]);
    assert!(drains(&bench), "{:?}", bench.done);
    bench.stopped("d", 2);
    bench.answer(is_release, StoreResponse::Release(Ok(vec![Released::Freed])));
    let Some((_, StoreRequest::Claim { wants, .. })) = bench.asked(is_claim) else {
        unreachable!()
    };
    assert_eq!(wants.iter().map(|want| &want.duty).collect::<Vec<_>>(), [&key("a")]);
}

/// A pinned duty that this member cannot claim now needs no room: no duty leaves early for it.
#[test]
fn a_pinned_duty_that_cannot_be_claimed_needs_no_room() {
    let duty = |id: &str| DutyId::new(id).unwrap();
    let drained = |prepare: fn(&mut Engine, DutyId)| {
        let mut bench = full();
        prepare(&mut bench.engine, duty("a"));
        let looks = (0..3).map(|_| {
            bench.look(&["other"], &[("a", None), ("d", Some(("me", 2)))]);
            bench.did(|e| matches!(e, Effect::Drain { .. }))
        });
        looks.fold(false, |before, now| before | now)
    };
    assert!(drained(|_, _| {}));
    assert!(!drained(|engine, duty| {
        let (until, length) = (at(5_000), Duration::from_secs(5));
        engine.resting.insert(duty, RestPeriod { until, length });
    }));
    assert!(!drained(|engine, duty| {
        engine.stopping.insert(duty, Epoch::new(1).unwrap());
    }));
}

/// A newly moved duty leaves early only if the others that may leave do not make enough room.
#[test]
fn a_settled_duty_makes_room_before_one_that_has_just_come() {
    let mut bench = Bench::new();
    bench.engine.settings.room = 2;
    bench.group.weights.insert(instance("me"), 3);
    bench.list(&["a", "p", "z"]);
    bench.join();
    let other = Some(("other", 1));
    bench.see(&["other"], &[("a", other), ("p", other), ("z", None)]);
    bench.grant("z", 1);
    bench.look(&["other"], &[("a", None), ("p", other), ("z", Some(("me", 1)))]);
    bench.grant("a", 2);
    bench.group.weights.insert(instance("me"), 1);
    bench.group.weights.insert(instance("other"), 3);
    bench.group.pins.insert(DutyId::new("p").unwrap(), Pin::Instance(instance("me")));
    let mut left = Vec::new();
    for _ in 0..3 {
        bench.look(&["other"], &[("a", Some(("me", 2))), ("p", None), ("z", Some(("me", 1)))]);
        left.extend(bench.done.iter().filter_map(|effect| match effect {
            Effect::Drain { duty, .. } => Some(duty.to_string()),
            _ => None,
        }));
    }
    assert_eq!(left, ["z"]);
}

/// A member that released a duty for a pin does not claim it while the other makes room: the
/// other's work may take long to stop, and the duty that it releases may need the room here.
#[test]
fn a_pinned_duty_waits_for_who_makes_room() {
    let waits = |drain: Duration, stops: u64| {
        let names: Vec<String> = (0..10).map(|n| format!("o{n}")).collect();
        let others = names.iter().map(|name| (name.as_str(), Some(("other", 1))));
        let seen = |mine| others.clone().chain([("p", mine)]).collect::<Vec<_>>();
        let mut bench = Bench::new();
        (bench.engine.settings.room, bench.engine.settings.drain) = (1, drain);
        let all: Vec<&str> = seen(None).iter().map(|(name, _)| *name).collect();
        bench.list(&all);
        bench.join();
        bench.see(&["other"], &seen(None));
        bench.grant("p", 2);
        // The other member has room for ten.
        bench.group.pins.insert(DutyId::new("p").unwrap(), Pin::Instance(instance("other")));
        bench.look(&["other"], &seen(Some(("me", 2))));
        assert!(
            bench.did(|e| matches!(e, Effect::Drain { why: StopReason::Pin, .. })),
            "{:?}",
            bench.done
        );
        let wait = |bench: &mut Bench, holder, fates: &[HoldFate]| {
            bench.look(&["other"], &seen(holder));
            bench.run_until(bench.now + 100);
            if bench.asked.iter().any(|(_, request)| is_keep(request)) {
                bench.keep(fates);
            }
        };
        while bench.now < stops {
            wait(&mut bench, Some(("me", 2)), &[HoldFate::Kept]);
        }
        bench.stopped("p", 2);
        bench.answer(is_release, StoreResponse::Release(Ok(vec![Released::Freed])));
        let released = bench.now;
        while bench.asked(is_claim).is_none() {
            wait(&mut bench, None, &[]);
            assert!(bench.now < released + 60_000, "a free duty may always be claimed");
        }
        let waited = Duration::from_millis(bench.now - released);
        assert!(waited > drain, "{waited:?} of {drain:?}");
    };
    waits(Duration::from_secs(5), 0);
    // It remembers the released duty for as long as that takes.
    waits(Duration::from_secs(25), 24_000);
}
