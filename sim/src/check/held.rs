//! Checks that every duty gets a holder in time and keeps one.

use tenure_core::DutyId;
use tenure_core::invariant::Step;

use super::{CheckFinding, CheckTimes, spans_of};
use crate::Nanos;

/// Checks that a duty has a holder by `times.held`. After that it may be without one for as long as
/// a handover takes, and from `times.settled` on not at all.
pub(super) fn one_duty(
    history: &[Step],
    duty: &DutyId,
    times: CheckTimes,
) -> Result<(), CheckFinding> {
    let spans = spans_of(history, duty);
    let mut spans: Vec<(Nanos, Nanos)> = spans.map(|(from, until, ..)| (from, until)).collect();
    spans.sort_unstable();
    let fail = |from: Nanos, until: Nanos| {
        let what = format!(
            "{duty} has no holder from {:.3} to {:.3}; it must have one by {:.3}, and always from \
             {:.3} on",
            seconds(from),
            seconds(until),
            seconds(times.held),
            seconds(times.settled)
        );
        Err(CheckFinding { checker: "held", what })
    };
    // End of the spans in which it was held so far.
    let mut reached = 0;
    for (from, until) in spans.into_iter().chain([(times.end, times.end)]) {
        let free = from > reached && from > times.held;
        let handover = from - reached.min(from) <= times.gap && from <= times.settled;
        if free && (reached <= times.quiet || !handover) {
            return fail(reached, from);
        }
        reached = reached.max(until);
    }
    Ok(())
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}
