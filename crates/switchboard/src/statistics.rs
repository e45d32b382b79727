//! Statistics of connectors, counted by one replica at a time.
//!
//! The replica that holds the duty counts under the epoch of its hold: the store rejects a step
//! under an older one. Each step is one transaction that also stores its progress, so a replica
//! may die at any time.
//!
//! Why: docs/decisions/0036-statistics-follow-sequence-numbers.md

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Clock, Code, DutyId, GroupName, LocalInstant, StoreError, Ttl};
use tenure_duty::{Duties, Guard, HoldLost, Join, Membership, opener, process};
use tenure_store::{BootClock, IfAbsent, StoreUrl};
use tokio::time::{sleep, timeout};

use crate::error::SwitchboardError;
use crate::http::{ServerPhase, ServerState};
use crate::lock;
use crate::notice::ServerNotice;
use crate::storage::{HistoryPruneReport, HistoryRetention, TimeSource};

/// Group that replicas join, and the duty that one of them holds.
const GROUP: &str = "tenure-switchboard";
const DUTY: &str = "statistics";
/// Lease duration: another replica takes over this long after the last renewal.
const TTL: Duration = Duration::from_secs(15);
/// Minimum remaining time of the hold when a step begins.
const MIN_REMAINING: Duration = Duration::from_secs(5);
/// Timeout of a step. The hold is renewed meanwhile.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two steps, for submissions.
const STEP_PAUSE: Duration = Duration::from_millis(20);
/// Delay before the hold is checked again.
const RENEW_WAIT: Duration = Duration::from_secs(1);
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
const MAX_RETENTION_STEPS: usize = 1_000;
/// Delay after a failed attempt to join.
const REJOIN_DELAY: Duration = Duration::from_secs(60);
/// Timeout for leaving: if it fails, other replicas wait for the TTL.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub(crate) struct StatisticsSettings {
    pub(crate) store: StoreUrl,
    pub(crate) every: Duration,
    pub(crate) keep: HistoryRetention,
}

/// Counts while this replica holds the duty, until shutdown; then it leaves the group, so that
/// another replica takes over at once.
pub(crate) async fn run(state: Arc<ServerState>, counting: StatisticsSettings) {
    let mut failed = None;
    loop {
        let joined = tokio::select! {
            joined = join(&counting) => joined,
            () = shutdown_begun(&state) => return,
        };
        let worked = match joined {
            Ok(membership) => {
                failed = None;
                work(&state, &counting, membership).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = worked {
            report_error(&state, &mut failed, error);
        }
        tokio::select! {
            () = sleep(REJOIN_DELAY) => {}
            () = shutdown_begun(&state) => return,
        }
    }
}

async fn shutdown_begun(state: &ServerState) {
    // The state owns the sender, so the channel cannot close.
    let _ = state.phase.subscribe().wait_for(|phase| *phase != ServerPhase::Running).await;
}

async fn join(counting: &StatisticsSettings) -> Result<Membership, SwitchboardError> {
    let (group, duty) = (GroupName::new(GROUP)?, DutyId::new(DUTY)?);
    let store = counting.store.clone();
    let open = opener(move || {
        let store = store.clone();
        async move { store.open(IfAbsent::Create, process::entropy()).await }
    });
    let duties = Duties::Standby(duty);
    Ok(Join::new(open, Arc::new(BootClock), group, Ttl::new(TTL)?, duties)
        .start()
        .await
        .map_err(StoreError::from)?)
}

/// Works as a member until the membership or the server ends.
async fn work(
    state: &Arc<ServerState>,
    counting: &StatisticsSettings,
    membership: Membership,
) -> Result<(), SwitchboardError> {
    let leaver = membership.leaver();
    let shared = (Arc::clone(state), counting.clone());
    let working = membership.run(move |guard| {
        let (state, counting) = shared.clone();
        async move { count(&state, &counting, &guard).await }
    });
    let mut working = std::pin::pin!(working);
    tokio::select! {
        ended = &mut working => return Ok(ended.map_err(StoreError::from)?),
        () = shutdown_begun(state) => {}
    }
    leaver.leave();
    // The server ends even if leaving timed out.
    let _ = timeout(LEAVE_TIMEOUT, working).await;
    Ok(())
}

/// Reports an error, unless it was the same before.
fn report_error(state: &ServerState, failed: &mut Option<Code>, error: SwitchboardError) {
    if failed.replace(error.code()) != Some(error.code()) {
        (state.log)(ServerNotice::StatisticsFailed(error));
    }
}

/// Counts for as long as the hold is valid and not draining.
async fn count(
    state: &ServerState,
    counting: &StatisticsSettings,
    guard: &Guard,
) -> Result<(), HoldLost> {
    (state.log)(ServerNotice::Counting { epoch: guard.epoch().get() });
    // Dropped also if this future is cancelled because the hold was lost.
    let _here = CountingGuard(state);
    let mut tidied: Option<LocalInstant> = None;
    let mut failed = None;
    while !guard.draining() {
        let mut done = roll_up(state, guard).await;
        let due = tidied.is_none_or(|at| BootClock.now().since(at) >= RETENTION_INTERVAL);
        if matches!(done, Ok(true)) && due {
            tidied = Some(BootClock.now());
            done = apply_retention(state, counting.keep, guard).await.map(|()| true);
        }
        match done {
            Ok(true) => failed = None,
            Ok(false) => {
                let newer =
                    SwitchboardError::refused(Code::Fenced, "a newer hold counts the statistics");
                report_error(state, &mut failed, newer);
                return Err(HoldLost::Revoked);
            }
            Err(error) => report_error(state, &mut failed, error),
        }
        tokio::select! {
            () = sleep(counting.every) => {}
            () = guard.stopping() => {}
        }
    }
    Ok(())
}

/// Guard that reports on drop that this replica no longer counts.
struct CountingGuard<'a>(&'a ServerState);

impl Drop for CountingGuard<'_> {
    fn drop(&mut self) {
        record_lag(self.0, None);
        if !self.0.is_leaving() {
            (self.0.log)(ServerNotice::NotCounting);
        }
    }
}

fn record_lag(state: &ServerState, when: Option<(LocalInstant, i64)>) {
    *lock(&state.counted) = when;
}

/// Waits until the next step may begin; returns `false` if counting must stop.
async fn may_go_on(guard: &Guard) -> bool {
    while !guard.draining() {
        match guard.check_for(MIN_REMAINING) {
            Ok(()) => return true,
            Err(HoldLost::Revoked) => return false,
            // The hold may still be valid and be renewed in a moment.
            Err(HoldLost::Deadline | HoldLost::Unconfirmed) => tokio::select! {
                () = sleep(RENEW_WAIT) => {}
                () = guard.stopping() => {}
            },
        }
    }
    false
}

/// Counts everything new; returns `false` if a newer hold has counted.
async fn roll_up(state: &ServerState, guard: &Guard) -> Result<bool, SwitchboardError> {
    while may_go_on(guard).await {
        let begun = BootClock.now();
        let rolled = state.storage.roll_up(guard.epoch(), TimeSource::Now);
        let rolled = timeout(STEP_TIMEOUT, rolled).await.map_err(|_| too_slow())??;
        if rolled.fenced {
            return Ok(false);
        }
        record_lag(state, Some((begun, rolled.behind)));
        if !rolled.more {
            break;
        }
        sleep(STEP_PAUSE).await;
    }
    Ok(true)
}

/// Deletes data past its retention, and reports how much.
async fn apply_retention(
    state: &ServerState,
    keep: HistoryRetention,
    guard: &Guard,
) -> Result<(), SwitchboardError> {
    let mut all = HistoryPruneReport::default();
    let mut failed = None;
    for _ in 0..MAX_RETENTION_STEPS {
        if !may_go_on(guard).await {
            break;
        }
        let step = timeout(STEP_TIMEOUT, state.storage.prune_history(keep, TimeSource::Now)).await;
        match step.unwrap_or_else(|_| Err(too_slow())) {
            Ok(step) => add(&mut all, step),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
        if !all.more {
            break;
        }
        sleep(STEP_PAUSE).await;
    }
    all.more = false;
    if all != HistoryPruneReport::default() {
        (state.log)(ServerNotice::Tidied(all));
    }
    failed.map_or(Ok(()), Err)
}

fn add(all: &mut HistoryPruneReport, step: HistoryPruneReport) {
    all.heartbeat_partitions_dropped += step.heartbeat_partitions_dropped;
    all.heartbeat_rows_deleted += step.heartbeat_rows_deleted;
    all.hourly_rows_deleted += step.hourly_rows_deleted;
    all.daily_rows_deleted += step.daily_rows_deleted;
    all.fanout_rows_deleted += step.fanout_rows_deleted;
    all.outcome_rows_deleted += step.outcome_rows_deleted;
    all.instances_deleted += step.instances_deleted;
    all.more = step.more;
}

/// Returns the error of a slow step. It may have happened; the next one uses the stored progress.
fn too_slow() -> SwitchboardError {
    SwitchboardError::unknown(
        Code::Lost,
        format!("a step took longer than {} s", STEP_TIMEOUT.as_secs()),
    )
}
