//! Every duty is held in time, and stays held.

use tenure_core::DutyId;
use tenure_core::invariant::Step;

use super::{CheckFinding, CheckTimes, spans_of};
use crate::Nanos;

/// A duty has a holder by `times.held`; from then on nobody holds it for no longer than a handover
/// takes, and from `times.settled` on never.
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
            "nobody holds {duty} from {:.3} to {:.3}; by {:.3} somebody must, from {:.3} on always",
            seconds(from),
            seconds(until),
            seconds(times.held),
            seconds(times.settled)
        );
        Err(CheckFinding { checker: "held", what })
    };
    // Until when it was held so far.
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
