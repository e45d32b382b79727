//! Results of polls in the store: written in batches by the holder, read back by the next one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{Code, Document, DutyId, StoreError};
use tenure_duty::{Guard, ReportHandle};
use tenure_operate::polls::PollTotals;
use tenure_wire::poll_report::PollReport;
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Pause in which further results join a batch.
const GATHER_PAUSE: Duration = Duration::from_millis(200);
/// Interval between writes of results that are like the ones before.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// Pause after a failed write.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Limit on the wait for the last result of a hold that is given back.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Results in one call.
const MAX_BATCH_RESULTS: usize = 1000;

/// Results that are not in the store yet, at most one for each hold.
#[derive(Debug)]
pub(super) struct PollResults {
    reports: ReportHandle,
    unwritten: Mutex<Unwritten>,
    changed: Notify,
    /// Changes after each batch.
    written: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Unwritten {
    results: BTreeMap<DutyId, UnwrittenResult>,
    /// Number of the newest result.
    last: u64,
}

#[derive(Clone, Debug)]
struct UnwrittenResult {
    hold: Guard,
    report: PollReport,
    number: u64,
    /// Whether it is written as soon as possible.
    is_due: bool,
}

/// Outcome of a batch.
#[derive(Debug, PartialEq, Eq)]
enum BatchOutcome {
    Written,
    /// More results are due.
    Full,
    Failed,
}

impl PollResults {
    pub(super) fn new(reports: ReportHandle) -> Self {
        let (unwritten, changed) = (Mutex::default(), Notify::new());
        Self { reports, unwritten, changed, written: watch::Sender::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        // Every change leaves it consistent, also after a panic.
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the unwritten result of a target. One that is due is written soon, the others with
    /// the next refresh.
    pub(super) fn note(&self, hold: &Guard, report: PollReport, is_due: bool) {
        {
            let mut unwritten = self.lock();
            unwritten.last += 1;
            let number = unwritten.last;
            let id = hold.duty().id.clone();
            let was_due = unwritten.results.get(&id).is_some_and(|before| before.is_due);
            let is_due = is_due || was_due;
            let result = UnwrittenResult { hold: hold.clone(), report, number, is_due };
            unwritten.results.insert(id, result);
        }
        if is_due {
            self.changed.notify_one();
        }
    }

    /// Writes the last result of a hold that is given back, if the store answers soon.
    pub(super) async fn finish(&self, hold: &Guard) {
        let id = &hold.duty().id;
        let mut written = self.written.subscribe();
        let is_there = match self.lock().results.get_mut(id) {
            Some(result) => {
                result.is_due = true;
                true
            }
            None => false,
        };
        if is_there && hold.check().is_ok() {
            self.changed.notify_one();
            let gone = async {
                // Cannot fail: `self` keeps the sender.
                while self.lock().results.contains_key(id) && written.changed().await.is_ok() {}
            };
            let _ = timeout(LAST_WRITE_TIMEOUT, gone).await;
        }
        let mut unwritten = self.lock();
        // The next hold of the target may have noted one already.
        if unwritten.results.get(id).is_some_and(|it| it.hold.epoch() == hold.epoch()) {
            unwritten.results.remove(id);
        }
    }

    /// Writes results until it is dropped, one batch at a time. `log` gets the first error of an
    /// outage.
    pub(super) async fn write_all(&self, log: impl Fn(&StoreError)) {
        let mut refresh = interval(REFRESH_INTERVAL);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failed = false;
        loop {
            let all = tokio::select! {
                () = self.changed.notified() => {
                    sleep(GATHER_PAUSE).await;
                    false
                }
                _ = refresh.tick() => true,
            };
            let outcome = loop {
                let outcome = self.write_batch(all, |error| {
                    if !failed {
                        log(error);
                    }
                });
                match outcome.await {
                    BatchOutcome::Full => {}
                    end => break end,
                }
            };
            failed = outcome == BatchOutcome::Failed;
            if failed {
                sleep(RETRY_PAUSE).await;
                self.changed.notify_one();
            }
        }
    }

    /// Writes results with one call: those that are due, or all.
    async fn write_batch(&self, all: bool, log: impl Fn(&StoreError)) -> BatchOutcome {
        let batch: Vec<(DutyId, UnwrittenResult)> = {
            let unwritten = self.lock();
            let due = unwritten.results.iter().filter(|(_, result)| all || result.is_due);
            due.take(MAX_BATCH_RESULTS).map(|(id, result)| (id.clone(), result.clone())).collect()
        };
        if batch.is_empty() {
            return BatchOutcome::Written;
        }
        let document = |result: &UnwrittenResult| {
            // A report is much smaller than a document may be.
            let document = Document::new(result.report.write()).unwrap_or_default();
            (result.hold.clone(), document)
        };
        let reports: Vec<_> = batch.iter().map(|(_, result)| document(result)).collect();
        let outcomes = self.reports.store(&reports).await;
        let mut outcome = match batch.len() {
            MAX_BATCH_RESULTS => BatchOutcome::Full,
            _ => BatchOutcome::Written,
        };
        {
            let mut unwritten = self.lock();
            for ((id, result), written) in batch.iter().zip(&outcomes) {
                match written {
                    Err(error) if error.code() != Code::Fenced || !result.hold.is_over() => {
                        if outcome != BatchOutcome::Failed {
                            log(error);
                        }
                        outcome = BatchOutcome::Failed;
                        if let Some(kept) = unwritten.results.get_mut(id) {
                            kept.is_due = true;
                        }
                    }
                    // It is stored, or the target belongs to another instance.
                    _ => {
                        let same = |kept: &UnwrittenResult| kept.number == result.number;
                        if unwritten.results.get(id).is_some_and(same) {
                            unwritten.results.remove(id);
                        }
                    }
                }
            }
        }
        self.written.send_replace(());
        outcome
    }

    /// Sums up the newest results of targets, from whatever holder.
    pub(super) async fn totals(&self, targets: &[DutyId]) -> Result<PollTotals, StoreError> {
        let mut found = Vec::with_capacity(targets.len());
        for targets in targets.chunks(MAX_BATCH_RESULTS) {
            let reports = self.reports.load(targets).await?;
            for (target, report) in targets.iter().zip(reports) {
                let report = report.and_then(|it| PollReport::read(it.document.as_bytes()));
                found.extend(report.map(|report| (target, report)));
            }
        }
        Ok(PollTotals::of(found.iter().map(|(target, report)| (target.as_str(), report))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenure_core::store::Evict;
    use tenure_core::{GroupName, Reason, Store, Ttl};
    use tenure_duty::{Duties, Join, Membership, MembershipEvent, opener};
    use tenure_store::conformance::wrap::{Fault, Flaky, Metered, Op};
    use tenure_store::{BootClock, Memory};

    use super::*;

    struct Scene {
        store: Arc<Metered>,
        membership: Membership,
        holds: Vec<Guard>,
        results: PollResults,
    }

    impl Scene {
        /// Holds some duties; the first writes have these faults.
        async fn new(duties: u32, faults: &[Fault]) -> Self {
            let memory = Flaky::planned(Arc::new(Memory::new(Arc::new(BootClock))));
            let flaky = faults.iter().fold(memory, |store, fault| store.on(Op::Report, *fault));
            let store = Arc::new(Metered::new(Arc::new(flaky), Arc::new(BootClock)));
            let given = Arc::clone(&store);
            let open = opener(move || {
                let given = Arc::clone(&given);
                async { Ok(given as Arc<dyn Store>) }
            });
            let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
            let group = GroupName::new("g").unwrap();
            let join = Join::new(open, Arc::new(BootClock), group, ttl, Duties::Shards(duties));
            let mut membership = join.start().await.unwrap();
            let mut holds = Vec::new();
            while holds.len() < duties as usize {
                if let Some(MembershipEvent::Assigned(hold)) = membership.next().await {
                    holds.push(hold);
                }
            }
            let results = PollResults::new(membership.reports());
            Self { store, membership, holds, results }
        }

        fn calls(&self) -> u64 {
            self.store.stats().get(&Op::Report).map_or(0, |stats| stats.calls)
        }

        async fn failing(&self) -> usize {
            let ids: Vec<DutyId> = self.holds.iter().map(|hold| hold.duty().id.clone()).collect();
            self.results.totals(&ids).await.unwrap().failing
        }
    }

    fn failed(reason: &str) -> PollReport {
        let mut report = PollReport::default();
        report.failed(1, reason);
        report
    }

    #[tokio::test]
    async fn many_results_are_one_call() {
        let scene = Scene::new(40, &[]).await;
        for hold in &scene.holds {
            scene.results.note(hold, PollReport::default(), true);
            // Only the newest counts.
            scene.results.note(hold, failed("x"), false);
        }
        assert_eq!(scene.results.write_batch(false, |_| {}).await, BatchOutcome::Written);
        assert_eq!((scene.calls(), scene.failing().await), (1, 40));
        assert_eq!(scene.results.write_batch(true, |_| {}).await, BatchOutcome::Written);
        assert_eq!(scene.calls(), 1, "there is nothing left");
        // A result that is like the one before waits for the next refresh.
        scene.results.note(&scene.holds[0], PollReport::default(), false);
        scene.results.write_batch(false, |_| {}).await;
        assert_eq!((scene.calls(), scene.failing().await), (1, 40));
        scene.results.write_batch(true, |_| {}).await;
        assert_eq!((scene.calls(), scene.failing().await), (2, 39));
        drop(scene.membership);
    }

    #[tokio::test]
    async fn a_result_that_was_not_written_is_kept_and_a_fenced_one_is_dropped() {
        let scene = Scene::new(2, &[Fault::Refused, Fault::LostBeforeItHappened]).await;
        scene.holds.iter().for_each(|hold| scene.results.note(hold, failed("x"), false));
        for _ in 0..2 {
            let logged = std::cell::Cell::new(0);
            let log = |_: &StoreError| logged.set(logged.get() + 1);
            assert_eq!(scene.results.write_batch(true, log).await, BatchOutcome::Failed);
            assert_eq!((logged.get(), scene.failing().await), (1, 0));
        }
        // From now on they are due.
        scene.results.write_batch(false, |_| {}).await;
        assert_eq!(scene.failing().await, 2);
        scene.results.note(&scene.holds[0], PollReport::default(), true);
        let (hold, why) = (&scene.holds[0], Reason::new("test").unwrap());
        let evicted = scene.store.evict(&hold.duty().group, hold.instance(), Evict::Now, &why);
        evicted.await.unwrap();
        assert_eq!(scene.results.write_batch(false, |_| {}).await, BatchOutcome::Written);
        assert_eq!(scene.failing().await, 2);
        assert!(scene.holds[0].check().is_err(), "the guard is lost");
        assert!(scene.results.lock().results.is_empty());
    }

    #[tokio::test]
    async fn the_last_result_is_written_before_a_hold_is_given_back() {
        let scene = Scene::new(1, &[]).await;
        scene.results.note(&scene.holds[0], failed("x"), false);
        tokio::select! {
            () = scene.results.write_all(|_| {}) => unreachable!("it runs until it is dropped"),
            () = scene.results.finish(&scene.holds[0]) => {}
        }
        assert_eq!(scene.failing().await, 1);
        // Nobody writes: the wait has a limit.
        scene.results.note(&scene.holds[0], PollReport::default(), false);
        scene.results.finish(&scene.holds[0]).await;
        assert_eq!(scene.failing().await, 1);
    }
}
