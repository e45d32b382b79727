//! Work that does not stop when it is cancelled.

use super::super::*;
use super::bench::*;
use crate::store::{HoldFate, Released};

/// It keeps its duty for one TTL after it was cancelled: by then each of its deadlines has passed.
/// Then the duty is released, and only another instance may start it.
#[test]
fn work_that_hangs_keeps_its_duty_for_one_ttl() {
    let mut bench = Bench::holding();
    bench.list(&[]);
    let mut revoked = None;
    while bench.now < 20_000 && !bench.asked.iter().any(|(_, request)| is_release(request)) {
        let effects = bench.run_until(bench.now + 100);
        if effects.iter().any(is_revoke) {
            revoked = Some(bench.now);
        }
        if bench.asked.iter().any(|(_, request)| is_keep(request)) {
            bench.keep(&[HoldFate::Kept]);
        }
        if bench.asked.iter().any(|(_, request)| is_look(request)) {
            bench.see(&[], &[("d", Some(("me", 5)))]);
        }
    }
    let kept = bench.now - revoked.unwrap();
    assert!((TTL..=TTL + 200).contains(&kept), "{kept} ms");
    bench.answer(is_release, StoreResponse::Release(Ok(vec![Released::Freed])));
    bench.list(&["d"]);
    bench.look(&[], &[("d", None)]);
    assert!(bench.asked(is_claim).is_none(), "its work still runs here");
    bench.stopped("d", 5);
    bench.look(&[], &[("d", None)]);
    assert!(bench.asked(is_claim).is_some());
}
