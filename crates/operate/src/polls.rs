//! Results of polls, as the reports on duties have them.

use serde::Serialize;
use tenure_core::store::{DutyReport, MAX_BATCH};
use tenure_core::{DutyKey, InstanceId, Store, StoreError};
use tenure_wire::poll_report::PollReport;

use crate::serialize::text;

/// The largest number of failing targets that are named.
const MAX_NAMED_TARGETS: usize = 20;

/// Newest result of a target's polls, and the instance that reported it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PollStatus {
    /// `succeeded` or `failed`.
    pub result: &'static str,
    /// The result.
    #[serde(flatten)]
    pub report: PollReport,
    /// The instance.
    #[serde(serialize_with = "text")]
    pub instance: InstanceId,
    /// Epoch of its hold.
    pub epoch: u64,
}

/// Results of many targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PollTotals {
    /// Targets whose last poll succeeded.
    pub succeeding: usize,
    /// Targets whose last poll failed.
    pub failing: usize,
    /// The failing targets with the most failures in a row, at most twenty, worst first.
    pub worst: Vec<FailingTarget>,
    /// The longest ago that a target succeeded last, of those that ever did.
    pub oldest_success_unix_ms: Option<u64>,
}

/// A target whose last poll failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailingTarget {
    /// Id of the target.
    pub target: String,
    /// Failed polls in a row.
    pub failures: u64,
    /// The beginning of the last reason.
    pub reason: String,
}

impl PollStatus {
    /// Reads the result of a poll; `None` if the report is about something else.
    pub fn of(report: DutyReport) -> Option<Self> {
        let DutyReport { epoch, instance, document, .. } = report;
        let report = PollReport::read(document.as_bytes())?;
        let result = if report.is_failing() { "failed" } else { "succeeded" };
        Some(Self { result, report, instance, epoch: epoch.get() })
    }
}

/// Reads the newest result of each duty, where it is a target.
pub async fn read(
    store: &dyn Store,
    duties: &[DutyKey],
) -> Result<Vec<Option<PollStatus>>, StoreError> {
    let mut found = Vec::with_capacity(duties.len());
    for chunk in duties.chunks(MAX_BATCH) {
        let reports = store.reports(chunk).await?;
        found.extend(reports.into_iter().map(|report| report.and_then(PollStatus::of)));
    }
    Ok(found)
}

impl PollTotals {
    /// Sums up results of targets by id.
    pub fn of<'a>(results: impl IntoIterator<Item = (&'a str, &'a PollReport)>) -> Self {
        let mut totals = Self::default();
        for (target, report) in results {
            let PollReport { failures, last_success_unix_ms: success, .. } = *report;
            let oldest = totals.oldest_success_unix_ms.into_iter().chain(success).min();
            totals.oldest_success_unix_ms = oldest;
            if !report.is_failing() {
                totals.succeeding += 1;
                continue;
            }
            totals.failing += 1;
            let reason = report.last_failure.clone().unwrap_or_default();
            totals.worst.push(FailingTarget { target: target.to_owned(), failures, reason });
        }
        totals.worst.sort_by(|a, b| (b.failures, &a.target).cmp(&(a.failures, &b.target)));
        totals.worst.truncate(MAX_NAMED_TARGETS);
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_targets_are_named_up_to_a_limit() {
        let mut reports: Vec<(String, PollReport)> = Vec::new();
        for n in 0..30 {
            let mut report = PollReport::default();
            report.succeeded(1_000 + n);
            (0..n % 25).for_each(|_| report.failed(2_000, "down"));
            reports.push((format!("t{n:02}"), report));
        }
        let totals = PollTotals::of(reports.iter().map(|(id, report)| (id.as_str(), report)));
        assert_eq!((totals.succeeding, totals.failing), (2, 28));
        assert_eq!(totals.oldest_success_unix_ms, Some(1_000));
        assert_eq!(totals.worst.len(), MAX_NAMED_TARGETS);
        assert_eq!((&*totals.worst[0].target, totals.worst[0].failures), ("t24", 24));
        assert_eq!(PollTotals::of([]), PollTotals::default());
    }
}
