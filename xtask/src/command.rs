//! Arguments of `cargo xtask`, and the tasks that they start.

use anyhow::Result;

use crate::check;
use crate::compare;
use crate::fresh::{self, FreshPart};
use crate::fuzz;
use crate::kill;
use crate::run::{cargo, step};
use crate::servers::{self, Servers};
use crate::soak;
use crate::test::{self, TestStep};
use crate::tidy;

/// Usage text.
pub(crate) const USAGE: &str = "\
usage: cargo xtask <command>

  test [--only fmt|tidy|clippy|tests|features] [-- WORDS]
                   install what is missing, then check and test everything;
                   WORDS go to `cargo test`, as in `-- -p tenure-store epoch`
  check            check the style, lint edited packages, and run their unit tests: an answer
                   within a minute
  tidy             run only the style checks
  services         start the test servers, print their URLs, wait for Ctrl-C
  soak [NAME]...   run checks that take too long for every change, all or some of: isolation,
                   churn, chaos, leader, failover, patroni, stories, rolling, features,
                   tests, fuzz, openapi, kill-table, sim, switchboard, model, compare, fresh
  fresh [--only build|test]
                   run the README's commands in a minimal Debian (needs root)
  bench [store] [WORDS]
                   measure on private servers; WORDS go to the benchmark
  bench roster     measure plans of a million duties
  bench failover   measure how long a duty is without a holder
  bench ingest     measure how many events the switchboard ingests
  bench heartbeat  measure what the heartbeats of ten thousand connectors cost
  bench bucket     compare buckets with Node, and their filter with Python
  bench api        compare commits through the local API with those by the library
  bench idle       measure the processor time of `tenure run` while nothing happens
  sim --seeds COUNT | --seed SEED [--world switchboard]
                   run the engine, or the switchboard, in virtual time: many seeds, or one with
                   its trace
  model [--instances COUNT] [--duties COUNT] [--depth MOST] [WORDS]
                   check the engine in all states that a few instances and duties can reach
  kill-table [--rule RULE] [--seeds COUNT] [--check | --sample]
                   switch off each rule in turn, see which test or checker notices, and
                   write the table into docs/reference/guarantees.md; --sample: ten of them
  fuzz [NAME]... [--seconds 60]
                   fuzz the parsers of untrusted input, all or some of: envelope, batch,
                   query, heartbeat, bucket
  compare [--systems NAME,...] [--faults NAME,...] [--reps N] [--jobs N] [--write]
                   compare `tenure run` with other locks under the same faults; --write
                   puts the result into docs/comparison.md
  isolation [--pairs A,B] [--level LEVEL] [--stop TEXT] [--list]
                   run pairs of PostgreSQL operations, one stopped at each lock, at each
                   isolation level
  chaos --store sqlite|postgres|redis|etcd [--minutes N] [--seed SEED]
                   run real instances on a private store while faults occur
  chaos WORDS      run another chaos command; `chaos --help` lists them";

/// One task and its options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum XtaskCommand {
    /// All steps, or one; with arguments for `cargo test`.
    Test {
        only: Option<TestStep>,
        words: Vec<String>,
    },
    Check,
    Tidy,
    Services,
    Soak {
        names: Vec<String>,
    },
    /// README commands on a fresh machine, all or some.
    Fresh {
        only: Option<FreshPart>,
    },
    Bench {
        words: Vec<String>,
    },
    Sim {
        words: Vec<String>,
    },
    Model {
        words: Vec<String>,
    },
    KillTable(kill::KillOptions),
    Fuzz(fuzz::FuzzOptions),
    Compare(compare::CompareOptions),
    Isolation {
        words: Vec<String>,
    },
    Chaos {
        words: Vec<String>,
    },
}

impl XtaskCommand {
    /// Parses the words after `cargo xtask`; `None` if they are not a valid command.
    pub(crate) fn parse(words: &[String]) -> Option<Self> {
        let (name, rest) = words.split_first()?;
        match name.as_str() {
            "test" => parse_test(rest),
            "check" if rest.is_empty() => Some(Self::Check),
            "tidy" if rest.is_empty() => Some(Self::Tidy),
            "services" if rest.is_empty() => Some(Self::Services),
            "soak" => Some(Self::Soak { names: rest.to_vec() }),
            "fresh" => fresh::parse(rest).map(|only| Self::Fresh { only }),
            "bench" => Some(Self::Bench { words: bench_words(rest) }),
            "sim" if !rest.is_empty() => Some(Self::Sim { words: rest.to_vec() }),
            "model" => Some(Self::Model { words: rest.to_vec() }),
            "kill-table" => kill::KillOptions::parse(rest).map(Self::KillTable),
            "fuzz" => fuzz::FuzzOptions::parse(rest).map(Self::Fuzz),
            "compare" => compare::CompareOptions::parse(rest).map(Self::Compare),
            "isolation" => Some(Self::Isolation { words: rest.to_vec() }),
            "chaos" if !rest.is_empty() => Some(Self::Chaos { words: chaos_words(rest) }),
            _ => None,
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Test { only, words } => test::run(only, &words),
            Self::Check => check::run(),
            Self::Tidy => tidy::run(),
            Self::Services => servers::hold(),
            Self::Soak { names } => soak::run(&names),
            Self::Fresh { only } => step("fresh", "cargo xtask fresh", || fresh::run(only)),
            Self::Bench { words } => step("bench", "cargo xtask bench", || bench(&words)),
            Self::Model { words } => step("model", "cargo xtask model", || {
                let fixed = ["run", "--release", "--package", "tenure-sim", "--", "model"];
                cargo(&fixed, &words, &[])
            }),
            Self::Sim { words } => step("sim", "cargo xtask sim", || {
                let fixed = ["run", "--release", "--package", "tenure-sim", "--"];
                cargo(&fixed, &words, &[])
            }),
            Self::KillTable(options) => {
                step("kill-table", "cargo xtask kill-table", || kill::run(&options))
            }
            Self::Fuzz(options) => fuzz::run(&options),
            Self::Compare(options) => compare::run(&options),
            Self::Isolation { words } => {
                step("isolation", "cargo xtask isolation", || isolation(&words))
            }
            Self::Chaos { words } => step("chaos", "cargo xtask chaos", || chaos(&words)),
        }
    }
}

/// Runs a benchmark, after starting what it requires.
fn bench(words: &[String]) -> Result<()> {
    let servers = match words.first().map(String::as_str) {
        // Plans and buckets are computed without a server.
        Some("roster") => None,
        Some("bucket") => {
            servers::install()?;
            cargo(&["build", "--release", "--package", "tenure-cli"], &[], &[])?;
            None
        }
        Some("api" | "idle") => {
            cargo(&["build", "--release", "--package", "tenure-cli"], &[], &[])?;
            Some(Servers::start()?)
        }
        _ => Some(Servers::start()?),
    };
    let variables = servers.as_ref().map(Servers::variables).unwrap_or_default();
    cargo(&["run", "--release", "--package", "tenure-bench", "--"], words, &variables)
}

/// Runs a command of the chaos program.
pub(crate) fn chaos(words: &[String]) -> Result<()> {
    servers::install()?;
    if words.iter().any(|word| word == "--patroni") {
        servers::install_patroni()?;
    }
    // Most of the time is waiting, so the debug build of the tests is fast enough.
    cargo(&["run", "--package", "tenure-chaos", "--"], words, &[])
}

/// Runs the isolation tester, in which rules can be switched off by `TENURE_TEST_MUTANT`.
pub(crate) fn isolation(words: &[String]) -> Result<()> {
    servers::install()?;
    let fixed = ["run", "--package", "tenure-isolation", "--features", "mutants", "--"];
    cargo(&fixed, words, &[])
}

fn parse_test(words: &[String]) -> Option<XtaskCommand> {
    let (only, rest) = match words {
        [flag, name, rest @ ..] if flag == "--only" => (Some(TestStep::named(name)?), rest),
        rest => (None, rest),
    };
    let words = match rest {
        [] => &[],
        [dashes, words @ ..] if dashes == "--" => words,
        _ => return None,
    };
    Some(XtaskCommand::Test { only, words: words.to_vec() })
}

/// Adds the default subject, `store`, unless another one is named.
fn bench_words(words: &[String]) -> Vec<String> {
    let named = words.first().is_some_and(|word| !word.starts_with('-'));
    let subject = (!named).then(|| "store".to_owned());
    subject.into_iter().chain(words.iter().cloned()).collect()
}

/// Adds the default command, `run`, unless another one is named.
fn chaos_words(words: &[String]) -> Vec<String> {
    let flags = words.first().is_some_and(|word| word.starts_with("--") && word != "--help");
    let run = flags.then(|| "run".to_owned());
    run.into_iter().chain(words.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<XtaskCommand> {
        XtaskCommand::parse(&words(line))
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn unknown_words_make_no_command() {
        for line in [
            "",
            "tests",
            "tidy now",
            "check core",
            "sim",
            "chaos",
            "test fmt",
            "test --only",
            "test --only nothing",
            "fuzz everything",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn test_takes_a_step_and_words() {
        let test = |only, given| Some(XtaskCommand::Test { only, words: words(given) });
        assert_eq!(parse("test"), test(None, ""));
        assert_eq!(parse("test --only fmt"), test(Some(TestStep::Fmt), ""));
        assert_eq!(parse("test --only tests -- -p a b"), test(Some(TestStep::Tests), "-p a b"));
        assert_eq!(parse("test -- epoch -- --exact"), test(None, "epoch -- --exact"));
    }

    #[test]
    fn bench_measures_the_store_by_default() {
        let bench = |given| Some(XtaskCommand::Bench { words: words(given) });
        assert_eq!(parse("bench"), bench("store"));
        assert_eq!(parse("bench --rounds 3"), bench("store --rounds 3"));
        assert_eq!(parse("bench store --rounds 3"), bench("store --rounds 3"));
        assert_eq!(parse("bench roster"), bench("roster"));
    }

    #[test]
    fn chaos_runs_faults_by_default() {
        let chaos = |given| Some(XtaskCommand::Chaos { words: words(given) });
        assert_eq!(parse("chaos --store redis"), chaos("run --store redis"));
        assert_eq!(parse("chaos run --store redis"), chaos("run --store redis"));
        assert_eq!(parse("chaos leader"), chaos("leader"));
        assert_eq!(parse("chaos --help"), chaos("--help"));
    }
}
