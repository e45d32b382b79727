//! What operators write into the document of the group.

use super::super::*;
use super::bench::*;
use crate::store::Released;

/// Who is drained hands over and stays; nobody to hand over to: it goes on, unless told otherwise.
#[test]
fn who_is_drained_hands_over_and_stays() {
    let drains = |bench: &Bench| bench.did(|e| matches!(e, Effect::Drain { why: "drain", .. }));
    let mine = [("d", Some(("me", 5)))];
    let mut bench = Bench::holding();
    bench.group.drained.insert(instance("me"), Drain::HandOver);
    bench.look(&[], &mine);
    assert!(!drains(&bench), "nobody would have it");
    bench.look(&["other"], &mine);
    assert!(drains(&bench));
    bench.stopped("d", 5);
    bench.answer(is_release, Answer::Release(Ok(vec![Released::Freed])));
    bench.look(&["other"], &[("d", None)]);
    bench.run_until(9_000);
    assert!(bench.asked(is_claim).is_none() && bench.asked(is_close).is_none());

    let mut bench = Bench::holding();
    bench.group.drained.insert(instance("me"), Drain::Anyway);
    bench.look(&[], &mine);
    assert!(drains(&bench));
}

/// A share that an operator gave counts, and not the member's own.
#[test]
fn a_given_weight_counts() {
    let mut bench = Bench::new();
    bench.group.weights.insert(instance("other"), 3);
    bench.list(&["a", "b", "c", "d"]);
    bench.join();
    bench.see(&["other"], &[("a", None), ("b", None), ("c", None), ("d", None)]);
    let Some((_, Request::Claim { wants, .. })) = bench.asked(is_claim) else { unreachable!() };
    assert_eq!(wants.len(), 1);
}

/// A paused group does nothing, and goes on when it is resumed.
#[test]
fn a_paused_group_stops_everything() {
    let mut bench = Bench::holding();
    bench.group.all_paused = true;
    bench.look(&[], &[("d", Some(("me", 5)))]);
    assert!(bench.did(|e| matches!(e, Effect::Drain { why: "paused", .. })));
    bench.stopped("d", 5);
    bench.answer(is_release, Answer::Release(Ok(vec![Released::Freed])));
    bench.look(&[], &[("d", None)]);
    assert!(bench.asked(is_claim).is_none());
    bench.group.all_paused = false;
    bench.look(&[], &[("d", None)]);
    assert!(bench.asked(is_claim).is_some());
}
