//! Counting what connectors have done, by one replica at a time.
//!
//! Whoever holds the duty counts, under the epoch of its hold: the store refuses a step under an
//! older one. Each step is one transaction with how far it came, so it does not matter when a
//! replica dies, nor for how long none was there.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tenure_core::{Clock, Code, DutyId, GroupName, LocalInstant, Ttl};
use tenure_duty::{Duties, Guard, HoldLost, Join, Membership, opener, process};
use tenure_store::{BootClock, IfAbsent, StoreUrl};
use tokio::time::{sleep, timeout};

use crate::error::SwitchboardError;
use crate::http::{Phase, State};
use crate::notice::Notice;
use crate::storage::{HistoryKeep, Tidied, When};

/// The group that replicas join, and the duty that one of them holds.
const GROUP: &str = "tenure-switchboard";
const DUTY: &str = "statistics";
/// After so long another replica counts, if the one that did was killed.
const TTL: Duration = Duration::from_secs(15);
/// A step begins only if so much of the hold is left.
const LEFT: Duration = Duration::from_secs(5);
/// How long a step may take. The hold is renewed meanwhile.
const STEP: Duration = Duration::from_secs(60);
/// Between two steps submissions have their turn.
const BREATH: Duration = Duration::from_millis(20);
/// How long it waits for its hold to be renewed.
const MOMENT: Duration = Duration::from_secs(1);
/// How often what is past its retention is taken away.
const TIDY: Duration = Duration::from_secs(60);
/// How many steps of that are done at a time; what is left is for the next.
const MOST_STEPS: usize = 1_000;
/// How long it waits after it could not join.
const AGAIN: Duration = Duration::from_secs(60);
/// How long leaving may take: the others wait for the TTL, if it fails.
const LEAVE: Duration = Duration::from_secs(3);

/// How statistics are counted.
#[derive(Clone)]
pub(crate) struct Counting {
    pub(crate) store: StoreUrl,
    pub(crate) every: Duration,
    pub(crate) keep: HistoryKeep,
}

/// Counts whenever this replica holds the duty, until the server is told to end; then it leaves, so
/// that another one counts at once.
pub(crate) async fn run(state: Arc<State>, counting: Counting) {
    let mut failed = None;
    loop {
        let joined = tokio::select! {
            joined = join(&counting) => joined,
            () = told_to_end(&state) => return,
        };
        let worked = match joined {
            Ok(membership) => {
                failed = None;
                work(&state, &counting, membership).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = worked {
            complain(&state, &mut failed, error);
        }
        tokio::select! {
            () = sleep(AGAIN) => {}
            () = told_to_end(&state) => return,
        }
    }
}

async fn told_to_end(state: &State) {
    // The state has the sender: it cannot close.
    let _ = state.phase.subscribe().wait_for(|phase| *phase != Phase::Running).await;
}

async fn join(counting: &Counting) -> Result<Membership, SwitchboardError> {
    let (group, duty) = (GroupName::new(GROUP)?, DutyId::new(DUTY)?);
    let store = counting.store.clone();
    let open = opener(move || {
        let store = store.clone();
        async move { store.open(IfAbsent::Create, process::entropy()).await }
    });
    let duties = Duties::Standby(duty);
    Ok(Join::new(open, Arc::new(BootClock), group, Ttl::new(TTL)?, duties).start().await?)
}

/// Works as a member until the membership ends, or the server.
async fn work(
    state: &Arc<State>,
    counting: &Counting,
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
        ended = &mut working => return Ok(ended?),
        () = told_to_end(state) => {}
    }
    leaver.leave();
    // Whether it was in time or not: the server ends.
    let _ = timeout(LEAVE, working).await;
    Ok(())
}

/// Says what went wrong, unless it was the same before.
fn complain(state: &State, failed: &mut Option<Code>, error: SwitchboardError) {
    if failed.replace(error.code()) != Some(error.code()) {
        (state.log)(Notice::StatisticsFailed(error));
    }
}

/// Counts for as long as the hold stands and nobody asks to stop.
async fn count(state: &State, counting: &Counting, guard: &Guard) -> Result<(), HoldLost> {
    (state.log)(Notice::Counting { epoch: guard.epoch().get() });
    // Also when this is dropped, because the hold was lost.
    let _here = Here(state);
    let mut tidied: Option<LocalInstant> = None;
    let mut failed = None;
    while !guard.draining() {
        let mut done = roll_up(state, guard).await;
        let due = tidied.is_none_or(|at| BootClock.now().since(at) >= TIDY);
        if matches!(done, Ok(true)) && due {
            tidied = Some(BootClock.now());
            done = tidy(state, counting.keep, guard).await.map(|()| true);
        }
        match done {
            Ok(true) => failed = None,
            Ok(false) => {
                let newer = SwitchboardError::refused(Code::Fenced, "a newer hold has counted");
                complain(state, &mut failed, newer);
                return Err(HoldLost::Revoked);
            }
            Err(error) => complain(state, &mut failed, error),
        }
        tokio::select! {
            () = sleep(counting.every) => {}
            () = guard.stopping() => {}
        }
    }
    Ok(())
}

/// While it is there, this replica counts.
struct Here<'a>(&'a State);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        counted(self.0, None);
        if !self.0.is_leaving() {
            (self.0.log)(Notice::NotCounting);
        }
    }
}

/// Remembers when it was counted, and how far behind that was.
fn counted(state: &State, when: Option<(LocalInstant, i64)>) {
    // Nothing that is done under this lock can be done by half.
    *state.counted.lock().unwrap_or_else(PoisonError::into_inner) = when;
}

/// Waits until the next step may begin; `false` when none may any more.
async fn may_go_on(guard: &Guard) -> bool {
    while !guard.draining() {
        match guard.check_for(LEFT) {
            Ok(()) => return true,
            Err(HoldLost::Revoked) => return false,
            // It may stand, and be renewed in a moment.
            Err(HoldLost::Deadline | HoldLost::Unconfirmed) => tokio::select! {
                () = sleep(MOMENT) => {}
                () = guard.stopping() => {}
            },
        }
    }
    false
}

/// Counts everything that there is; `false` when a newer hold has counted.
async fn roll_up(state: &State, guard: &Guard) -> Result<bool, SwitchboardError> {
    while may_go_on(guard).await {
        let begun = BootClock.now();
        let rolled = state.storage.roll_up(guard.epoch(), When::Now);
        let rolled = timeout(STEP, rolled).await.map_err(|_| too_slow())??;
        if rolled.fenced {
            return Ok(false);
        }
        counted(state, Some((begun, rolled.behind)));
        if !rolled.more {
            break;
        }
        sleep(BREATH).await;
    }
    Ok(true)
}

/// Takes away what is past its retention, and says how much that was.
async fn tidy(state: &State, keep: HistoryKeep, guard: &Guard) -> Result<(), SwitchboardError> {
    let mut all = Tidied::default();
    let mut failed = None;
    for _ in 0..MOST_STEPS {
        if !may_go_on(guard).await {
            break;
        }
        let step = timeout(STEP, state.storage.tidy(keep, When::Now)).await;
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
        sleep(BREATH).await;
    }
    all.more = false;
    if all != Tidied::default() {
        (state.log)(Notice::Tidied(all));
    }
    failed.map_or(Ok(()), Err)
}

fn add(all: &mut Tidied, step: Tidied) {
    all.heartbeat_partitions_dropped += step.heartbeat_partitions_dropped;
    all.heartbeat_rows_deleted += step.heartbeat_rows_deleted;
    all.hourly_rows_deleted += step.hourly_rows_deleted;
    all.daily_rows_deleted += step.daily_rows_deleted;
    all.fanout_rows_deleted += step.fanout_rows_deleted;
    all.outcome_rows_deleted += step.outcome_rows_deleted;
    all.instances_deleted += step.instances_deleted;
    all.more = step.more;
}

/// Whether the step was done is not known; the next one begins where it ended.
fn too_slow() -> SwitchboardError {
    SwitchboardError::unknown(Code::Lost, format!("a step took longer than {} s", STEP.as_secs()))
}
