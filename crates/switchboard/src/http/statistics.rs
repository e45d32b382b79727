//! Endpoints: statistics of connectors.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::body::Incoming;
use serde_json::{Value, json};
use tenure_core::Clock;
use tenure_duty::process;
use tenure_store::BootClock;

use super::connectors::not_found;
use super::inbox::reserve;
use super::response::{ApiError, ApiResult};
use super::{ApiRequest, ServerState, time};
use crate::liveness::{Liveness, Policy};
use crate::lock;
use crate::storage::{
    ConnectorDetail, ConnectorSum, FanoutCount, Measures, Period, SeriesBucket, SeriesStep,
};
use crate::view::{error_rate_pct, percent, uptime_pct};

const MAX_SUMMARY_MEMORY: usize = 14 << 20;
const MAX_STATS_MEMORY: usize = 1 << 20;
/// Maximum age of the liveness counts in metrics.
const LIVENESS_CACHE_AGE: Duration = Duration::from_secs(10);
/// Assumed interval of heartbeats until one was observed.
const DEFAULT_INTERVAL_MICROS: i64 = 120 * 1_000_000;

impl ApiRequest<'_> {
    pub(super) async fn connector_summary(self, _: Incoming) -> ApiResult {
        self.caller.permits_overview()?;
        let period = self.period(&Period::ALL, Period::Day)?;
        let page = reserve(self.state, MAX_SUMMARY_MEMORY).await?;
        let (now, sums) = self.state.storage.sums(period).await?;
        let judge = |sum: &ConnectorSum| {
            self.state.liveness.judge(now, sum.last_heartbeat_at, sum.interval)
        };
        page.data(totals(period, &sums, judge)).response()
    }

    pub(super) async fn fanout(self, _: Incoming) -> ApiResult {
        self.caller.permits_overview()?;
        let period = self.period(&[Period::Week, Period::Month], Period::Week)?;
        let page = reserve(self.state, MAX_SUMMARY_MEMORY).await?;
        let now = i64::try_from(process::unix_micros()).unwrap_or(i64::MAX);
        let found = self.state.storage.fanout(&first_day(period, now)).await?;
        page.data(matrix(period, &found)).response()
    }

    pub(super) async fn connector_stats(self, _: Incoming) -> ApiResult {
        let period = self.period(&Period::ALL, Period::Day)?;
        let name = self.visible_name().await?;
        let page = reserve(self.state, MAX_STATS_MEMORY).await?;
        let storage = &self.state.storage;
        let shown = storage.connector(&name).await?.ok_or_else(not_found)?;
        let found = storage.series(&name, period.since(shown.now), period.step()).await?;
        page.data(stats(&shown, period, &found, self.state.liveness)).response()
    }

    /// Reads the only query parameter of these endpoints.
    fn period(self, known: &[Period], default: Period) -> ApiResult<Period> {
        let mut query = self.query()?;
        let text = query.text("period");
        let found = match text.as_deref().map(Period::parse) {
            None => Some(default),
            Some(period) => period.filter(|period| known.contains(period)),
        };
        let period = found.ok_or_else(|| {
            let known: Vec<_> = known.iter().map(|period| period.as_str()).collect();
            ApiError::bad_request(format!("query parameter period: is not {}", known.join(", ")))
        })?;
        query.end()?;
        Ok(period)
    }
}

/// A connector in the totals.
#[derive(serde::Serialize)]
struct SummaryRow<'a> {
    connector_type: &'a str,
    endpoint_identity: &'a str,
    liveness: &'static str,
    messages_ingested: i64,
    messages_failed: i64,
}

/// Returns the totals of all connectors as JSON. The rows are written as text, because there may be
/// ten thousand connectors.
fn totals(
    period: Period,
    sums: &[ConnectorSum],
    judge: impl Fn(&ConnectorSum) -> Liveness,
) -> String {
    let (mut ingested, mut failed) = (0_i64, 0_i64);
    let mut counts = [0; Liveness::ALL.len()];
    let mut rows = String::new();
    for sum in sums {
        let liveness = judge(sum);
        counts[liveness as usize] += 1;
        ingested = ingested.saturating_add(sum.messages_ingested);
        failed = failed.saturating_add(sum.messages_failed);
        let row = SummaryRow {
            connector_type: &sum.connector_type,
            endpoint_identity: &sum.endpoint_identity,
            liveness: liveness.as_str(),
            messages_ingested: sum.messages_ingested,
            messages_failed: sum.messages_failed,
        };
        if !rows.is_empty() {
            rows.push(',');
        }
        // Cannot fail: keys are names, and every value has a JSON form.
        rows.push_str(&serde_json::to_string(&row).unwrap_or_default());
    }
    let [online, stale, offline, unknown] = counts;
    let totals = json!({
        "period": period.as_str(),
        "total_connectors": sums.len(),
        "connectors_online": online,
        "connectors_stale": stale,
        "connectors_offline": offline,
        "connectors_unknown": unknown,
        "total_messages_ingested": ingested,
        "total_messages_failed": failed,
        "overall_error_rate_pct": error_rate_pct(ingested, failed),
    });
    let totals = totals.to_string();
    format!("{},\"by_connector\":[{rows}]}}", totals.trim_end_matches('}'))
}

/// Returns the number of online, stale, offline and unknown connectors.
pub(super) async fn liveness_counts(state: &ServerState) -> Option<[u64; 4]> {
    let mut known = state.liveness_counts.lock().await;
    if let Some((found, counts)) = *known
        && BootClock.now().since(found) < LIVENESS_CACHE_AGE
    {
        return Some(counts);
    }
    let (now, sums) = state.storage.sums(Period::Day).await.ok()?;
    let mut counts = [0; Liveness::ALL.len()];
    for sum in &sums {
        counts[state.liveness.judge(now, sum.last_heartbeat_at, sum.interval) as usize] += 1;
    }
    *known = Some((BootClock.now(), counts));
    Some(counts)
}

/// Returns how far counting is behind, in microseconds, if this replica counts.
pub(super) fn lag(state: &ServerState) -> Option<i64> {
    let (at, behind) = (*lock(&state.counted))?;
    let since = i64::try_from(BootClock.now().since(at).as_micros()).unwrap_or(i64::MAX);
    Some(behind.saturating_add(since))
}

/// Returns the first day (UTC) of a period that ends now.
fn first_day(period: Period, now: i64) -> String {
    let days = match period {
        Period::Day => 1,
        Period::Week => 7,
        Period::Month => 30,
    };
    day(now - (days - 1) * SeriesStep::Day.micros())
}

fn day(at: i64) -> String {
    time(at).chars().take("2026-02-15".len()).collect()
}

fn matrix(period: Period, found: &[FanoutCount]) -> Value {
    let mut rows: BTreeMap<(&str, &str), BTreeMap<&str, i64>> = BTreeMap::new();
    for it in found {
        let row = rows.entry((&it.connector_type, &it.endpoint_identity)).or_default();
        let cell = row.entry(&it.target).or_default();
        *cell = cell.saturating_add(it.messages);
    }
    let matrix = rows.into_iter().map(|((connector_type, endpoint_identity), targets)| {
        json!({
            "connector_type": connector_type,
            "endpoint_identity": endpoint_identity,
            "targets": targets,
        })
    });
    json!({ "period": period.as_str(), "matrix": matrix.collect::<Vec<_>>() })
}

/// Returns the statistics of a connector in a period that ends now, with every step.
fn stats(shown: &ConnectorDetail, period: Period, found: &[SeriesBucket], policy: Policy) -> Value {
    let ConnectorDetail { now, connector, .. } = shown;
    let (since, step) = (period.since(*now), period.step());
    let mut all = Measures::default();
    let mut series = Vec::new();
    for n in 0..period.steps() {
        let start = since + n * step.micros();
        let bucket = found.iter().find(|bucket| bucket.start == start);
        let it = bucket.map(|bucket| bucket.measures).unwrap_or_default();
        all.messages_ingested = all.messages_ingested.saturating_add(it.messages_ingested);
        all.messages_failed = all.messages_failed.saturating_add(it.messages_failed);
        all.heartbeat_count += it.heartbeat_count;
        all.healthy_count += it.healthy_count;
        series.push(json!({
            "bucket": if step == SeriesStep::Day { day(start) } else { time(start) },
            "messages_ingested": it.messages_ingested,
            "messages_failed": it.messages_failed,
            "healthy_count": it.healthy_count,
            "degraded_count": it.degraded_count,
            "error_count": it.error_count,
        }));
    }
    let hours = (period.steps() * step.micros() / SeriesStep::Hour.micros()) as f64;
    let elapsed = (now - since.max(connector.first_seen_at)).max(0);
    let interval = policy.interval(connector.interval).unwrap_or(DEFAULT_INTERVAL_MICROS);
    let expected = elapsed / interval.max(1);
    json!({
        "connector_type": connector.connector_type,
        "endpoint_identity": connector.endpoint_identity,
        "period": period.as_str(),
        "summary": {
            "messages_ingested": all.messages_ingested,
            "messages_failed": all.messages_failed,
            "error_rate_pct": error_rate_pct(all.messages_ingested, all.messages_failed),
            "uptime_pct": uptime_pct(&all),
            "avg_messages_per_hour": (all.messages_ingested as f64 / hours * 10.0).round() / 10.0,
            "heartbeat_coverage_pct": percent(all.heartbeat_count.min(expected), expected, 2),
        },
        "timeseries": series,
    })
}

#[cfg(test)]
mod tests;
