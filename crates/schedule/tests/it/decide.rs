//! Decisions, with clocks that jump.

use std::time::Duration;

use proptest::prelude::*;
use tenure_schedule::{
    InterruptedPolicy, MAX_CATCH_UP, MissedPolicy, RunSchedule, SchedulePolicy, ScheduleStep,
    anchor, decide,
};
use tenure_wire::schedule::{OccurrenceRecord, OccurrenceState, ScheduleRecord};

use crate::at;

const POLICY: SchedulePolicy = SchedulePolicy {
    interrupted: InterruptedPolicy::Rerun,
    missed: MissedPolicy::Newest,
    deadline: None,
    retries: 0,
    retry_delay: Duration::from_secs(60),
};

const HOUR: u64 = 3_600_000;

fn hourly() -> RunSchedule {
    RunSchedule::cron("0 * * * *", "UTC").unwrap()
}

/// Record of the hourly schedule since 2026-01-01, with this newest occurrence.
fn record(occurrence: &str, state: OccurrenceState, attempt: u32) -> ScheduleRecord {
    let mut record = anchor(None, &hourly(), at("2026-01-01T00:00Z")).0;
    record.occurrence = Some(OccurrenceRecord {
        scheduled_unix_ms: at(occurrence),
        state,
        attempt,
        instance: String::new(),
        started_unix_ms: None,
        finished_unix_ms: Some(at(occurrence)),
        exit_code: None,
    });
    record
}

fn run(occurrence: &str, attempt: u32) -> ScheduleStep {
    ScheduleStep::Run { occurrence: at(occurrence), attempt }
}

fn missed(occurrence: &str, count: usize) -> ScheduleStep {
    let state = OccurrenceState::Missed;
    ScheduleStep::Settle { occurrence: at(occurrence), state, count }
}

#[track_caller]
fn decides(record: &ScheduleRecord, policy: SchedulePolicy, now: &str, expected: ScheduleStep) {
    assert_eq!(decide(&hourly(), record, &policy, at(now)), expected);
}

#[test]
fn the_newest_missed_one_is_run_and_the_others_are_recorded() {
    let done = record("2026-01-02T00:00Z", OccurrenceState::Done, 1);
    let wait = ScheduleStep::Wait { until: at("2026-01-02T01:00Z") };
    decides(&done, POLICY, "2026-01-02T00:59:59Z", wait);
    decides(&done, POLICY, "2026-01-02T01:00Z", run("2026-01-02T01:00Z", 1));
    decides(&done, POLICY, "2026-01-02T05:10Z", missed("2026-01-02T04:00Z", 4));
    let missed = record("2026-01-02T04:00Z", OccurrenceState::Missed, 0);
    decides(&missed, POLICY, "2026-01-02T05:10Z", run("2026-01-02T05:00Z", 1));
    // The clock went back: nothing is due before the record.
    let wait = ScheduleStep::Wait { until: at("2026-01-02T01:00Z") };
    decides(&done, POLICY, "2026-01-01T07:00Z", wait);
}

#[test]
fn a_deadline_ends_the_time_to_start() {
    let done = record("2026-01-02T00:00Z", OccurrenceState::Done, 1);
    let policy = SchedulePolicy { deadline: Some(Duration::from_secs(600)), ..POLICY };
    decides(&done, policy, "2026-01-02T01:10Z", run("2026-01-02T01:00Z", 1));
    decides(&done, policy, "2026-01-02T01:10:01Z", missed("2026-01-02T01:00Z", 1));
    let started = record("2026-01-02T00:00Z", OccurrenceState::Started, 1);
    decides(&started, policy, "2026-01-02T00:10Z", run("2026-01-02T00:00Z", 2));
    let (occurrence, state) = (at("2026-01-02T00:00Z"), OccurrenceState::Skipped);
    let skipped = ScheduleStep::Settle { occurrence, state, count: 1 };
    decides(&started, policy, "2026-01-02T00:11Z", skipped);
}

#[test]
fn all_missed_ones_are_run_in_order_up_to_a_limit() {
    let done = record("2026-01-02T00:00Z", OccurrenceState::Done, 1);
    let policy = SchedulePolicy { missed: MissedPolicy::All, ..POLICY };
    decides(&done, policy, "2026-01-02T05:10Z", run("2026-01-02T01:00Z", 1));
    let late = at("2026-01-02T00:00Z") + (MAX_CATCH_UP as u64 + 3) * HOUR;
    let step = decide(&hourly(), &done, &policy, late);
    assert_eq!(step, missed("2026-01-02T03:00Z", 3));
    let cut = record("2026-01-02T03:00Z", OccurrenceState::Missed, 0);
    let step = decide(&hourly(), &cut, &policy, late);
    assert_eq!(step, run("2026-01-02T04:00Z", 1));
    let within = SchedulePolicy { deadline: Some(Duration::from_secs(2 * 3600)), ..policy };
    decides(&done, within, "2026-01-02T05:10Z", missed("2026-01-02T03:00Z", 3));
}

#[test]
fn an_interrupted_one_is_run_again_or_skipped() {
    let started = record("2026-01-02T00:00Z", OccurrenceState::Started, 3);
    // Also when the next one is due.
    decides(&started, POLICY, "2026-01-02T07:00Z", run("2026-01-02T00:00Z", 4));
    let skip = SchedulePolicy { interrupted: InterruptedPolicy::Skip, ..POLICY };
    let (occurrence, state) = (at("2026-01-02T00:00Z"), OccurrenceState::Skipped);
    let skipped = ScheduleStep::Settle { occurrence, state, count: 1 };
    decides(&started, skip, "2026-01-02T00:00:01Z", skipped);
}

#[test]
fn a_failed_one_is_retried_until_the_next_is_due() {
    let failed = |attempt| record("2026-01-02T00:00Z", OccurrenceState::Failed, attempt);
    let policy = SchedulePolicy { retries: 2, ..POLICY };
    let wait = |until| ScheduleStep::Wait { until: at(until) };
    decides(&failed(1), policy, "2026-01-02T00:00:30Z", wait("2026-01-02T00:01Z"));
    decides(&failed(1), policy, "2026-01-02T00:01Z", run("2026-01-02T00:00Z", 2));
    decides(&failed(2), policy, "2026-01-02T00:01Z", wait("2026-01-02T00:02Z"));
    decides(&failed(3), policy, "2026-01-02T00:10Z", wait("2026-01-02T01:00Z"));
    decides(&failed(1), policy, "2026-01-02T01:00Z", run("2026-01-02T01:00Z", 1));
    let slow = SchedulePolicy { retry_delay: Duration::from_secs(7200), ..policy };
    decides(&failed(1), slow, "2026-01-02T00:30Z", wait("2026-01-02T01:00Z"));
    // The clock went back: the pause is not extended.
    decides(&failed(1), policy, "2026-01-01T23:00Z", run("2026-01-02T00:00Z", 2));
}

#[test]
fn a_changed_schedule_counts_from_its_change() {
    let done = record("2026-01-02T00:00Z", OccurrenceState::Done, 1);
    let schedule = RunSchedule::cron("*/10 * * * *", "UTC").unwrap();
    let (changed, store) = anchor(Some(done.clone()), &schedule, at("2026-01-02T00:35Z"));
    assert!(store && changed.occurrence == done.occurrence);
    let step = decide(&schedule, &changed, &POLICY, at("2026-01-02T00:35Z"));
    assert_eq!(step, ScheduleStep::Wait { until: at("2026-01-02T00:40Z") });
    // An occurrence before the recorded one is never run, also of another schedule.
    let (changed, _) = anchor(Some(done), &schedule, at("2026-01-01T12:00Z"));
    let step = decide(&schedule, &changed, &POLICY, at("2026-01-01T12:10Z"));
    assert_eq!(step, ScheduleStep::Wait { until: at("2026-01-02T00:10Z") });
}

#[test]
fn a_schedule_that_began_with_a_clock_ahead_goes_on() {
    let (ahead, _) = anchor(None, &hourly(), at("2036-01-01T00:00Z"));
    let (record, store) = anchor(Some(ahead), &hourly(), at("2026-01-01T00:30Z"));
    assert!(store);
    let step = decide(&hourly(), &record, &POLICY, at("2026-01-01T01:00Z"));
    assert_eq!(step, run("2026-01-01T01:00Z", 1));
}

#[test]
fn a_period_is_run_once() {
    let daily = RunSchedule::period(Duration::from_secs(86_400), "UTC").unwrap();
    let of = |record: &ScheduleRecord, now| decide(&daily, record, &POLICY, at(now));
    let (fresh, _) = anchor(None, &daily, at("2026-01-02T10:00Z"));
    assert_eq!(of(&fresh, "2026-01-02T10:00Z"), run("2026-01-02T00:00Z", 1));
    let done = record("2026-01-02T00:00Z", OccurrenceState::Done, 1);
    assert_eq!(of(&done, "2026-01-02T23:59:59.999Z"), ScheduleStep::Nothing);
    assert_eq!(of(&done, "2026-01-01T23:59:00Z"), ScheduleStep::Nothing);
    assert_eq!(of(&done, "2026-01-05T00:00Z"), run("2026-01-05T00:00Z", 1));
    let started = record("2026-01-02T00:00Z", OccurrenceState::Started, 1);
    assert_eq!(of(&started, "2026-01-02T12:00Z"), run("2026-01-02T00:00Z", 2));
    assert_eq!(of(&started, "2026-01-03T12:00Z"), run("2026-01-03T00:00Z", 1));
    let failed = record("2026-01-02T00:00Z", OccurrenceState::Failed, 1);
    assert_eq!(of(&failed, "2026-01-02T12:00Z"), ScheduleStep::Nothing);
}

/// What a holder experiences between two decisions.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The clock shows another time: it went on, or it jumped, forwards or back.
    Clock(i64),
    /// The command ends with 0.
    Ends,
    Fails,
    /// The holder dies: in the middle if a command runs.
    Dies,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..4 * HOUR as i64).prop_map(Event::Clock),
        2 => (-200 * HOUR as i64..200 * HOUR as i64).prop_map(Event::Clock),
        4 => Just(Event::Ends),
        1 => Just(Event::Fails),
        2 => Just(Event::Dies),
    ]
}

fn policy() -> impl Strategy<Value = SchedulePolicy> {
    let interrupted = prop_oneof![Just(InterruptedPolicy::Rerun), Just(InterruptedPolicy::Skip)];
    let missed = prop_oneof![Just(MissedPolicy::Newest), Just(MissedPolicy::All)];
    let deadline = proptest::option::of((1..40_000_u64).prop_map(Duration::from_secs));
    (interrupted, missed, deadline, 0..3_u32).prop_map(
        |(interrupted, missed, deadline, retries)| SchedulePolicy {
            interrupted,
            missed,
            deadline,
            retries,
            ..POLICY
        },
    )
}

/// Holders one after the other, and the store's record.
#[derive(Debug)]
struct Life {
    schedule: RunSchedule,
    policy: SchedulePolicy,
    now: u64,
    stored: Option<ScheduleRecord>,
    /// The occurrence whose command runs.
    running: Option<u64>,
    /// Attempts in their order.
    attempts: Vec<u64>,
    done: Vec<u64>,
    interrupted: Vec<u64>,
}

impl Life {
    fn record(&mut self) -> &mut OccurrenceRecord {
        self.stored.as_mut().unwrap().occurrence.as_mut().unwrap()
    }

    fn set(&mut self, occurrence: u64, state: OccurrenceState, attempt: u32) {
        let before = self.stored.as_ref().and_then(|record| record.occurrence.as_ref());
        let before = before.map_or(0, |before| before.scheduled_unix_ms);
        assert!(occurrence >= before, "the record goes back");
        let finished_unix_ms = Some(self.now);
        self.stored.as_mut().unwrap().occurrence = Some(OccurrenceRecord {
            scheduled_unix_ms: occurrence,
            state,
            attempt,
            instance: String::new(),
            started_unix_ms: None,
            finished_unix_ms,
            exit_code: None,
        });
    }

    fn happens(&mut self, event: Event) {
        match (event, self.running) {
            (Event::Clock(by), _) => self.now = self.now.saturating_add_signed(by),
            (Event::Ends, Some(occurrence)) => {
                self.running = None;
                self.record().state = OccurrenceState::Done;
                self.done.push(occurrence);
            }
            (Event::Fails, Some(_)) => {
                self.running = None;
                let now = self.now;
                let record = self.record();
                record.state = OccurrenceState::Failed;
                record.finished_unix_ms = Some(now);
            }
            (Event::Dies, Some(occurrence)) => {
                self.running = None;
                self.interrupted.push(occurrence);
            }
            _ => {}
        }
    }

    /// Decides until a command runs or nothing is due.
    fn decides(&mut self) {
        if self.running.is_some() {
            return;
        }
        for _ in 0..10 {
            let (record, _) = anchor(self.stored.take(), &self.schedule, self.now);
            let step = decide(&self.schedule, &record, &self.policy, self.now);
            self.stored = Some(record);
            match step {
                ScheduleStep::Wait { until } => return assert!(until > self.now),
                ScheduleStep::Nothing => return,
                ScheduleStep::Settle { occurrence, state, .. } => self.set(occurrence, state, 0),
                ScheduleStep::Run { occurrence, attempt } => {
                    self.set(occurrence, OccurrenceState::Started, attempt);
                    self.attempts.push(occurrence);
                    self.running = Some(occurrence);
                    return;
                }
            }
        }
        panic!("it never runs and never waits: {self:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::cases(100), ..ProptestConfig::default() })]

    #[test]
    fn no_clock_makes_an_occurrence_run_twice(
        events in proptest::collection::vec(event(), 1..40),
        policy in policy(),
        is_period in any::<bool>(),
    ) {
        let schedule = match is_period {
            true => RunSchedule::period(Duration::from_secs(3600), "UTC").unwrap(),
            false => hourly(),
        };
        let mut life = Life {
            schedule,
            policy,
            now: at("2026-01-01T00:30Z"),
            stored: None,
            running: None,
            attempts: Vec::new(),
            done: Vec::new(),
            interrupted: Vec::new(),
        };
        for event in events {
            life.decides();
            life.happens(event);
        }
        // Nominal times only grow, each is done once at most, and only an interruption or a retry
        // repeats one.
        prop_assert!(life.attempts.is_sorted());
        prop_assert!(life.done.is_sorted_by(|one, next| one < next));
        for occurrence in &life.attempts {
            let count = |all: &[u64]| all.iter().filter(|other| *other == occurrence).count();
            let again = match life.policy.interrupted {
                InterruptedPolicy::Rerun => count(&life.interrupted),
                InterruptedPolicy::Skip => 0,
            };
            let most = 1 + again + life.policy.retries as usize;
            prop_assert!(count(&life.attempts) <= most);
        }
    }
}
