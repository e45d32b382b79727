//! Metrics of the server. No label identifies a token, a sender or an endpoint.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tenure_wire::exposition::{DURATIONS, Histogram, MetricsText};

use crate::commit::TriedCommit;
use crate::http::STATUSES;
use crate::http::route::{ROUTES, Route};
use crate::liveness::Liveness;

/// Upper bounds of the buckets for events in a commit.
const SIZES: [f64; 11] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0];

#[derive(Debug, Default)]
pub(crate) struct EventCounter(AtomicU64);

impl EventCounter {
    pub(crate) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct AtomicHistogram<const N: usize> {
    buckets: [AtomicU64; N],
    count: AtomicU64,
    /// Sum in millionths.
    sum: AtomicU64,
}

impl<const N: usize> Default for AtomicHistogram<N> {
    fn default() -> Self {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Self { buckets, count: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }
}

impl<const N: usize> AtomicHistogram<N> {
    fn add(&self, bounds: &[f64; N], value: f64) {
        if let Some(at) = bounds.iter().position(|bound| value <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }

    fn write(&self, text: &mut MetricsText, name: &str, help: &str, bounds: &[f64; N]) {
        text.family(name, "histogram", help);
        let buckets: [u64; N] = std::array::from_fn(|n| self.buckets[n].load(Ordering::Relaxed));
        let sum = self.sum.load(Ordering::Relaxed) as f64 / 1e6;
        let count = self.count.load(Ordering::Relaxed);
        text.histogram(name, &[], Histogram { bounds, buckets: &buckets, count, sum });
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Overload {
    Queue,
    Memory,
    Connections,
}

/// Requests by route and status; the last row and the last column count all others.
#[derive(Debug)]
struct Requests(Vec<[EventCounter; STATUSES.len() + 1]>);

impl Default for Requests {
    fn default() -> Self {
        Self((0..=ROUTES.len()).map(|_| Default::default()).collect())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) accepted: EventCounter,
    pub(crate) duplicates: EventCounter,
    pub(crate) rejected: EventCounter,
    pub(crate) reused: EventCounter,
    pub(crate) fenced: EventCounter,
    pub(crate) auth_failures: EventCounter,
    pub(crate) beats: EventCounter,
    pub(crate) beats_late: EventCounter,
    pub(crate) beats_refused: EventCounter,
    pub(crate) history_lost: EventCounter,
    pub(crate) forwarded: EventCounter,
    overload: [EventCounter; 3],
    requests: Requests,
    durations: AtomicHistogram<{ DURATIONS.len() }>,
    commit_durations: AtomicHistogram<{ DURATIONS.len() }>,
    commit_sizes: AtomicHistogram<{ SIZES.len() }>,
    pub(crate) connections: AtomicUsize,
}

/// Values that are read when metrics are requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauges {
    pub(crate) queue: usize,
    pub(crate) budget: usize,
    pub(crate) budget_size: usize,
    /// `None` if the store did not answer.
    pub(crate) pending_letters: Option<u64>,
    /// Online, stale, offline and unknown connectors; `None` if the store did not answer.
    pub(crate) connectors: Option<[u64; 4]>,
    /// Lag of the statistics in microseconds; `None` if another replica counts.
    pub(crate) lag: Option<i64>,
    pub(crate) sse_sessions: usize,
}

impl Metrics {
    pub(crate) fn committed(&self, tried: TriedCommit) {
        self.commit_durations.add(&DURATIONS, tried.took.as_secs_f64());
        self.commit_sizes.add(&SIZES, tried.events as f64);
    }

    pub(crate) fn answered(&self, route: Option<&Route>, status: u16, took: Duration) {
        // Routes may share a label: the first one counts for all.
        let row = route.and_then(|route| ROUTES.iter().position(|it| it.label == route.label));
        let row = row.unwrap_or(ROUTES.len());
        let column = STATUSES.iter().position(|known| *known == status);
        self.requests.0[row][column.unwrap_or(STATUSES.len())].add(1);
        self.durations.add(&DURATIONS, took.as_secs_f64());
    }

    /// Records a request that was rejected because of overload.
    pub(crate) fn overloaded(&self, reason: Overload) {
        self.overload[reason as usize].add(1);
    }

    pub(crate) fn text(&self, now: Gauges) -> String {
        let mut text = MetricsText::default();
        let mut counters = |name, help, label: &str, counts: &[(&str, &EventCounter)]| {
            text.family(name, "counter", help);
            for (value, count) in counts {
                let labels = [(label, *value)];
                text.sample(name, if label.is_empty() { &[] } else { &labels }, count.get());
            }
        };
        let events = [
            ("accepted", &self.accepted),
            ("duplicate", &self.duplicates),
            ("rejected", &self.rejected),
        ];
        let name = "tenure_switchboard_ingest_events_total";
        counters(name, "Submitted events by outcome.", "outcome", &events);
        let beats = [
            ("accepted", &self.beats),
            ("late", &self.beats_late),
            ("refused", &self.beats_refused),
        ];
        let name = "tenure_switchboard_heartbeats_total";
        counters(name, "Heartbeats by outcome.", "outcome", &beats);
        let help = "Duplicates whose payload differs from the first event's.";
        counters("tenure_switchboard_key_reused_total", help, "", &[("", &self.reused)]);
        let help = "Submissions rejected because a newer hold was seen.";
        counters("tenure_switchboard_fenced_total", help, "", &[("", &self.fenced)]);
        let help = "Messages of SSE sessions that were forwarded to another replica.";
        counters("tenure_switchboard_sse_forwarded_total", help, "", &[("", &self.forwarded)]);
        let help = "Requests without a valid token.";
        counters("tenure_switchboard_auth_failures_total", help, "", &[("", &self.auth_failures)]);
        let help = "Accepted heartbeats that are missing from the history.";
        let name = "tenure_switchboard_heartbeat_history_lost_total";
        counters(name, help, "", &[("", &self.history_lost)]);
        let [queue, memory, connections] = &self.overload;
        let overload = [("queue", queue), ("memory", memory), ("connections", connections)];
        let name = "tenure_switchboard_overload_total";
        counters(name, "Requests rejected because of overload.", "reason", &overload);
        self.write_requests(&mut text);
        let help = "Time from the head of a request to its response.";
        let name = "tenure_switchboard_request_duration_seconds";
        self.durations.write(&mut text, name, help, &DURATIONS);
        let name = "tenure_switchboard_commit_duration_seconds";
        self.commit_durations.write(&mut text, name, "Duration of commits.", &DURATIONS);
        let name = "tenure_switchboard_commit_events";
        self.commit_sizes.write(&mut text, name, "Events per commit.", &SIZES);
        self.write_gauges(&mut text, now);
        text.finish()
    }

    fn write_requests(&self, text: &mut MetricsText) {
        let name = "tenure_switchboard_requests_total";
        text.family(name, "counter", "Requests by route and status.");
        let routes = ROUTES.iter().map(|route| route.label).chain(["other"]);
        for (route, row) in routes.zip(&self.requests.0) {
            for (n, count) in row.iter().enumerate().filter(|(_, count)| count.get() > 0) {
                let status = STATUSES.get(n).map_or("other".to_owned(), u16::to_string);
                text.sample(name, &[("route", route), ("status", &status)], count.get());
            }
        }
    }

    fn write_gauges(&self, text: &mut MetricsText, now: Gauges) {
        let connections = self.connections.load(Ordering::Relaxed);
        for (name, help, value) in [
            ("queue_depth", "Submissions waiting for a commit.", Some(now.queue as u64)),
            ("budget_bytes", "Used bytes of the memory budget.", Some(now.budget as u64)),
            (
                "budget_limit_bytes",
                "Size of the memory budget in bytes.",
                Some(now.budget_size as u64),
            ),
            ("connections", "Open connections.", Some(connections as u64)),
            (
                "sse_sessions",
                "Open sessions of the older MCP transport.",
                Some(now.sse_sessions as u64),
            ),
            ("dead_letters_pending", "Pending dead letters.", now.pending_letters),
        ] {
            let Some(value) = value else { continue };
            let name = format!("tenure_switchboard_{name}");
            text.family(&name, "gauge", help);
            text.sample(&name, &[], value);
        }
        if let Some(lag) = now.lag {
            let name = "tenure_switchboard_statistics_lag_seconds";
            text.family(name, "gauge", "Lag of the statistics, if this replica counts them.");
            text.sample(name, &[], lag.max(0) as f64 / 1e6);
        }
        if let Some(counts) = now.connectors {
            let name = "tenure_switchboard_connectors";
            text.family(name, "gauge", "Connectors that are not archived.");
            for (liveness, count) in Liveness::ALL.iter().zip(counts) {
                text.sample(name, &[("liveness", liveness.as_str())], count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_told() {
        let metrics = Metrics::default();
        metrics.accepted.add(3);
        metrics.overloaded(Overload::Memory);
        metrics.answered(ROUTES.first(), 202, Duration::from_millis(2));
        metrics.answered(None, 299, Duration::from_secs(60));
        let (submissions, events, took) = (3, 7, Duration::from_millis(4));
        metrics.committed(TriedCommit { submissions, events, took, is_committed: true });
        metrics.beats_late.add(2);
        let now = Gauges {
            queue: 5,
            budget: 6,
            budget_size: 7,
            pending_letters: None,
            connectors: Some([4, 3, 2, 1]),
            lag: Some(1_500_000),
            sse_sessions: 8,
        };
        let text = metrics.text(now);
        for line in [
            "tenure_switchboard_ingest_events_total{outcome=\"accepted\"} 3",
            "tenure_switchboard_overload_total{reason=\"memory\"} 1",
            "tenure_switchboard_overload_total{reason=\"queue\"} 0",
            "tenure_switchboard_requests_total{route=\"ingest\",status=\"202\"} 1",
            "tenure_switchboard_requests_total{route=\"other\",status=\"other\"} 1",
            "tenure_switchboard_request_duration_seconds_bucket{le=\"0.0025\"} 1",
            "tenure_switchboard_request_duration_seconds_bucket{le=\"+Inf\"} 2",
            "tenure_switchboard_commit_events_bucket{le=\"10\"} 1",
            "tenure_switchboard_commit_events_sum 7",
            "tenure_switchboard_queue_depth 5",
            "tenure_switchboard_heartbeats_total{outcome=\"late\"} 2",
            "tenure_switchboard_connectors{liveness=\"stale\"} 3",
            "tenure_switchboard_statistics_lag_seconds 1.5",
            "tenure_switchboard_sse_sessions 8",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("dead_letters"));
    }
}
