//! Tests for rules that the simulator cannot judge, and rules without a mutant.

/// Package of a named test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suite {
    /// The unit tests of `tenure-core`.
    Core,
    /// The suite that every store runs.
    Conformance,
    /// Properties of one store only.
    Store,
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
            Self::Cli => ("tenure-cli", "it"),
        }
    }
}

/// A test that fails while its mutant is on.
#[derive(Debug)]
pub(super) struct RuleTest {
    pub(super) mutant: &'static str,
    pub(super) suite: Suite,
    pub(super) test: &'static str,
}

const fn judge(mutant: &'static str, suite: Suite, test: &'static str) -> RuleTest {
    RuleTest { mutant, suite, test }
}

/// Tests for mutants that the simulator does not judge; it judges all others.
pub(super) const JUDGES: &[RuleTest] = &[
    judge(
        "r3-name",
        Suite::Conformance,
        "memory::session::another_nonce_cannot_keep_a_session_alive",
    ),
    judge("r8-whole", Suite::Conformance, "memory::hold::keep_alive_tells_the_fate_of_each_hold"),
    judge(
        "r12-unlocked",
        Suite::Store,
        "postgres::fence::nobody_is_granted_the_duty_while_an_effect_is_under_way",
    ),
    judge("r22-evict", Suite::Conformance, "memory::evict::at_ttl_refuses_the_keep_alive"),
    judge("r22-progress", Suite::Core, "engine::tests::a_pause_is_not_a_lack_of_progress"),
    judge(
        "r24-audit",
        Suite::Conformance,
        "memory::audit::the_life_of_a_duty_is_recorded_in_order",
    ),
    judge("r26-group", Suite::Cli, "guard::nothing_of_a_command_outlives_it"),
    judge("r26-orphan", Suite::Cli, "kernel::a_command_does_not_outlive_its_guard"),
    judge(
        "r26-late",
        Suite::Cli,
        "guard::at_the_deadline_nothing_runs_any_more_although_nobody_says_a_word",
    ),
];

/// Rules that cannot be switched off, with the reason.
pub(super) const WITHOUT: &[(u32, &str)] = &[
    (
        1,
        "No switch: a plan and a hold are different types, and code that mixes them does not \
         compile.",
    ),
    (13, "No switch yet: no part of Tenure sends effects to a resource without a fence."),
    (
        15,
        "No switch yet: only the switchboard ingests events, and no switch covers it. In the \
         simulation the resource deduplicates events, and D1 judges it.",
    ),
    (
        16,
        "No switch yet: no part of Tenure moves a cursor by acknowledged events. The work of the \
         simulation does, and *skipped* judges it.",
    ),
];

/// Number of rules.
pub(super) const RULES: u32 = 26;
