//! Tests that judge mutants, and rules without a mutant. The simulators judge the other mutants.

use std::collections::BTreeSet;

use super::places::Place;

/// Program with tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suite {
    /// The unit tests of `tenure-core`.
    Core,
    /// The suite that every store runs.
    Conformance,
    /// Properties of one store only.
    Store,
    /// The suite of the switchboard's storage, and properties of one database.
    Switchboard,
    /// Pairs of operations on PostgreSQL, one stopped at each lock.
    Isolation,
    /// The binary.
    Cli,
}

impl Suite {
    /// Returns the package and its test target in cargo.
    pub(super) const fn target(self) -> (&'static str, &'static str) {
        match self {
            Self::Core => ("tenure-core", "tenure_core"),
            Self::Conformance => ("tenure-store", "conformance"),
            Self::Store => ("tenure-store", "it"),
            Self::Switchboard => ("tenure-switchboard", "it"),
            Self::Isolation => ("tenure-isolation", "it"),
            Self::Cli => ("tenure-cli", "it"),
        }
    }

    /// Returns a case, and its suite, that uses everything once and breaks no rule: it passes under
    /// every mutant, so a mutant is not noticed for being a statement that no database accepts.
    const fn control(self) -> Option<(Self, &'static str)> {
        match self {
            Self::Conformance | Self::Store => Some((Self::Conformance, "hold::a_plain_life")),
            Self::Switchboard | Self::Isolation => {
                Some((Self::Switchboard, "commit::a_plain_life"))
            }
            Self::Core | Self::Cli => None,
        }
    }

    /// Returns the backends that keep the rules of this suite.
    const fn backends(self) -> &'static [Place] {
        match self {
            Self::Conformance | Self::Store => &Place::STORES,
            Self::Switchboard | Self::Isolation => &Place::DATABASES,
            Self::Core | Self::Cli => &[],
        }
    }

    /// Returns the names of a case on all backends, and the place that each judges.
    fn cases(self, case: &str) -> Vec<(String, Place)> {
        let before = if self == Self::Switchboard { "storage::" } else { "" };
        let name = |place: &Place| (format!("{before}{}::{case}", place.name()), *place);
        self.backends().iter().map(name).collect()
    }
}

/// Tests that fail while a mutant is on.
#[derive(Debug)]
pub(super) struct Judge {
    pub(super) mutant: &'static str,
    pub(super) suite: Suite,
    /// The place that it judges; `None` for a case of every backend.
    place: Option<Place>,
    /// The whole name of the test, or the name of a case.
    test: &'static str,
}

impl Judge {
    /// Returns the names of the tests, and the place that each judges.
    pub(super) fn tests(&self) -> Vec<(String, Place)> {
        match self.place {
            Some(place) => vec![(self.test.to_owned(), place)],
            None => self.suite.cases(self.test),
        }
    }

    /// Returns the tests that pass although the mutant is on, in the places that this judges.
    pub(super) fn controls(&self) -> Option<(Suite, Vec<String>)> {
        let (suite, case) = self.suite.control()?;
        let cases = suite.cases(case).into_iter();
        let here = cases.filter(|(_, place)| self.place.is_none_or(|only| only == *place));
        Some((suite, here.map(|(name, _)| name).collect()))
    }
}

/// Judges one place by a test.
const fn test(mutant: &'static str, suite: Suite, place: Place, test: &'static str) -> Judge {
    Judge { mutant, suite, place: Some(place), test }
}

/// Judges every store by a case of the suite.
const fn store(mutant: &'static str, case: &'static str) -> Judge {
    Judge { mutant, suite: Suite::Conformance, place: None, test: case }
}

/// Judges both databases of the switchboard by a case of the suite.
const fn switchboard(mutant: &'static str, case: &'static str) -> Judge {
    Judge { mutant, suite: Suite::Switchboard, place: None, test: case }
}

/// All tests that judge mutants.
pub(super) const JUDGES: &[Judge] = &[
    store("r2-same", "hold::the_epoch_grows_after_a_release"),
    store("r2-forget", "hold::the_epoch_grows_after_a_release"),
    store("r3-name", "session::another_nonce_cannot_keep_a_session_alive"),
    test(
        "r4-early",
        Suite::Store,
        Place::Sqlite,
        "sqlite::clock::a_keep_alive_that_waited_past_the_expiry_finds_the_session_ended",
    ),
    test(
        "r4-early",
        Suite::Store,
        Place::Postgres,
        "postgres::locks::a_keep_alive_that_waited_past_the_expiry_finds_the_session_ended",
    ),
    store("r8-whole", "hold::keep_alive_tells_the_fate_of_each_hold"),
    store("r9-revive", "hold::an_expired_hold_cannot_be_renewed"),
    store("r9-release", "hold::release_of_an_older_epoch_frees_nothing"),
    store("r9-report", "report::a_report_under_an_older_epoch_is_fenced"),
    test(
        "r12-unlocked",
        Suite::Store,
        Place::Postgres,
        "postgres::fence::nobody_is_granted_the_duty_while_an_effect_is_under_way",
    ),
    store("r14-version", "checkpoint::a_conflicting_commit_changes_nothing"),
    store("r14-fence", "checkpoint::a_commit_under_an_older_epoch_is_fenced"),
    test(
        "r14-batch",
        Suite::Conformance,
        Place::Postgres,
        "postgres::checkpoint::a_batch_answers_per_item",
    ),
    test(
        "r21-early",
        Suite::Core,
        Place::Engine,
        "engine::tests::agree::nothing_is_claimed_before_all_know_of_a_longer_ttl",
    ),
    store("r22-evict", "evict::at_ttl_refuses_the_keep_alive"),
    test(
        "r22-progress",
        Suite::Core,
        Place::Engine,
        "engine::tests::a_pause_is_not_a_lack_of_progress",
    ),
    store("r24-audit", "audit::the_life_of_a_duty_is_recorded_in_order"),
    test("r26-group", Suite::Cli, Place::Guard, "guard::nothing_of_a_command_outlives_it"),
    test("r26-orphan", Suite::Cli, Place::Guard, "kernel::a_command_does_not_outlive_its_guard"),
    test(
        "r26-late",
        Suite::Cli,
        Place::Guard,
        "guard::at_the_deadline_nothing_runs_any_more_although_nobody_says_a_word",
    ),
    switchboard("s2-dedupe", "commit::a_key_is_stored_once"),
    test(
        "s2-prune",
        Suite::Switchboard,
        Place::SwitchboardPostgres,
        "postgres::meanwhile::retention_forgets_nothing_that_is_seen_again",
    ),
    switchboard("s3-fence", "fence::an_older_epoch_stores_nothing"),
    switchboard("s3-owner", "fence::another_instance_at_the_same_epoch_stores_nothing"),
    test(
        "s3-level",
        Suite::Isolation,
        Place::SwitchboardPostgres,
        "the_main_pairs_are_as_in_a_serial_order",
    ),
    switchboard("s4-token", "token::an_ended_token_stores_nothing"),
    test(
        "s4-decide",
        Suite::Switchboard,
        Place::SwitchboardPostgres,
        "storage::postgres::token::an_ended_token_decides_nothing",
    ),
    test(
        "s4-meanwhile",
        Suite::Switchboard,
        Place::SwitchboardPostgres,
        "postgres::meanwhile::nothing_is_stored_after_a_revocation_was_answered",
    ),
    switchboard("s5-order", "inbox::pages_lead_to_the_end"),
    switchboard("s5-reuse", "prune::positions_go_on_after_everything_is_gone"),
    switchboard("s6-stamp", "clock::what_arrives_under_a_clock_that_is_behind_is_not_old"),
    test(
        "s7-unlocked",
        Suite::Switchboard,
        Place::SwitchboardPostgres,
        "storage::postgres::commit::positions_have_no_gaps_among_writers",
    ),
    switchboard("s8-clock", "clock::the_clock_follows_at_twice_the_speed"),
    switchboard("s9-ahead", "clock::a_clock_that_was_ahead_keeps_nobody_alive"),
    switchboard("s10-tag", "inbox::a_cursor_names_its_message"),
    switchboard("s10-adopt", "inbox::an_adopted_inbox_goes_on_far_above"),
    switchboard("s11-epoch", "statistics::an_older_epoch_counts_nothing"),
    test(
        "s11-bound",
        Suite::Switchboard,
        Place::SwitchboardPostgres,
        "postgres::registry::a_beat_that_is_stuck_is_not_lost",
    ),
];

/// Backends in which a mutant breaks nothing.
#[derive(Debug)]
pub(super) struct Unbroken {
    pub(super) mutant: &'static str,
    pub(super) places: &'static [Place],
    pub(super) why: &'static str,
}

const fn unbroken(mutant: &'static str, places: &'static [Place], why: &'static str) -> Unbroken {
    Unbroken { mutant, places, why }
}

/// Why the others of STORES and DATABASES have no such switch.
const SERIAL: &str = "SQLite itself admits one writer at a time";

/// Every backend that a mutant of its suite leaves alone.
pub(super) const UNBROKEN: &[Unbroken] = &[
    unbroken(
        "r4-early",
        &[Place::Memory, Place::CursorFile],
        "only this process enters the state, and never waits inside",
    ),
    unbroken("r4-early", &[Place::Redis], "Redis runs one script at a time, with one time"),
    unbroken("r4-early", &[Place::Etcd], "etcd itself ends its leases"),
    unbroken(
        "r12-unlocked",
        &[Place::Memory, Place::CursorFile, Place::Sqlite, Place::Redis, Place::Etcd],
        "the store has no effects in the caller's transaction",
    ),
    unbroken(
        "r14-batch",
        &[Place::Memory, Place::CursorFile, Place::Sqlite, Place::Redis, Place::Etcd],
        "one path commits one or many",
    ),
    unbroken("s2-prune", &[Place::SwitchboardSqlite], SERIAL),
    unbroken("s3-level", &[Place::SwitchboardSqlite], SERIAL),
    unbroken("s4-decide", &[Place::SwitchboardSqlite], "the statement of `s4-token` serves both"),
    unbroken("s4-meanwhile", &[Place::SwitchboardSqlite], SERIAL),
    unbroken("s7-unlocked", &[Place::SwitchboardSqlite], SERIAL),
    unbroken("s11-bound", &[Place::SwitchboardSqlite], SERIAL),
];

/// Returns the backends in which a mutant must be judged, or be listed in [`UNBROKEN`].
pub(super) fn backends(mutant: &str) -> BTreeSet<Place> {
    let judges = JUDGES.iter().filter(|judge| judge.mutant == mutant);
    judges.flat_map(|judge| judge.suite.backends()).copied().collect()
}

/// Mutants of the test command, from every store, both databases and the simulator.
pub(super) const SAMPLE: &[&str] = &[
    "r2-forget",
    "r5-margin",
    "r9-release",
    "r14-fence",
    "r16-early",
    "r22-evict",
    "s3-fence",
    "s4-token",
    "s8-clock",
    "s10-tag",
];

/// Mutants in code that a simulator runs, which only tests can judge.
pub(super) const NOT_SIMULATED: &[&str] =
    &["r3-name", "r8-whole", "r9-report", "r21-early", "r22-evict", "r22-progress", "r24-audit"];

/// Rules that cannot be switched off, with the reason.
pub(super) const WITHOUT: &[(&str, &str)] = &[
    (
        "R1",
        "No switch: a plan and a hold are different types, and code that mixes them does not \
         compile.",
    ),
    ("R13", "No switch yet: no part of Tenure sends effects to a resource without a fence."),
    ("S1", "No switch: each commit is one statement or one transaction of the database."),
];

/// Whether a rule can be switched off.
pub(crate) fn has_switch(rule: &str) -> bool {
    !WITHOUT.iter().any(|(without, _)| *without == rule)
}

/// Numbers of rules: those of leases (R), and those of the switchboard (S).
const RULES: [(&str, u32); 2] = [("R", 26), ("S", 11)];

/// Returns the names of all rules, in order.
pub(crate) fn rules() -> impl Iterator<Item = String> {
    RULES.iter().flat_map(|(kind, last)| (1..=*last).map(move |n| format!("{kind}{n}")))
}
