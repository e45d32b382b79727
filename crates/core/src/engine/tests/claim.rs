//! Pending claims.

use super::super::*;
use super::bench::*;

/// A look whose response overtakes that of a claim shows this member as the holder. It must not
/// stand by for itself.
#[test]
fn a_member_does_not_stand_by_for_its_own_claim() {
    let mut bench = Bench::new();
    bench.list(&["d"]);
    bench.join();
    bench.see(&[], &[("d", None)]);
    assert!(bench.asked.iter().any(|(_, request)| is_claim(request)));
    bench.look(&[], &[("d", Some(("me", 5)))]);
    assert!(!bench.recorded(Change::Standby), "{:?}", bench.done);
    bench.grant("d", 5);
    assert!(bench.did(|effect| matches!(effect, Effect::Assign { .. })));
}
