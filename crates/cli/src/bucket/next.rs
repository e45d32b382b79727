//! `tenure bucket next`: the bucket of the next run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use tenure_store::StoreUrl;
use tenure_supervise::observe::LogLevel;
use tenure_supervise::run::RunSettings;
use tenure_wire::bucket::CommitTiming;

use super::hold::RotationWork;
use super::rotation::Rotation;
use crate::args::{Global, Member, name, path};
use crate::failure::Failure;
use crate::{run as runner, wait_for};

const NEEDS_COMMAND: &str = "\
--commit on-success with --duty needs the command of the run behind --: the hold ends with this \
command, and another worker would get the same bucket";

pub(super) const HELP: &str = "\
With a command, --duty guards its whole run: nobody else runs a bucket of this rotation meanwhile.
The command finds its bucket in TENURE_BUCKET_ID and TENURE_BUCKET_TOTAL, its config and state in
the files TENURE_BUCKET_CONFIG and TENURE_BUCKET_STATE. Exit codes are then those of `tenure run`.";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The connector's config, a JSON object
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The connector's state, a JSON object; where there is no such file, the rotation begins
    #[arg(long, value_name = "FILE")]
    state: PathBuf,
    /// When a bucket counts as executed
    #[arg(long, value_enum, default_value = "at-start")]
    commit: When,
    /// Replace the state file, whole or not at all
    #[arg(long)]
    write: bool,
    /// What to print
    #[arg(long, value_enum, default_value = "all", conflicts_with = "command")]
    print: Print,
    /// Keep in the store, under this duty, which bucket ran last, and take the step under a hold
    #[arg(long, value_name = "GROUP/NAME")]
    duty: Option<String>,
    /// Do not wait for the duty or the store: fail if somebody else holds the duty
    #[arg(long, requires = "duty")]
    no_wait: bool,
    #[command(flatten)]
    member: Member,
    /// A command to run with the bucket, and its arguments; needs --duty
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    /// When its run starts: a run that fails skips its bucket until the next cycle
    AtStart,
    /// When its run has succeeded: until then the same bucket is next
    OnSuccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Print {
    /// One JSON object with config and state
    All,
    /// The config of the run
    Config,
    /// The state to keep now
    State,
    /// The number of the bucket
    Id,
}

/// What to do, read and checked.
#[derive(Debug)]
pub(crate) enum Settings {
    Alone(Rotation),
    Held(Box<RunSettings>, RotationWork),
}

impl Settings {
    pub(super) fn new(args: &Args, global: &Global) -> Result<Self, Failure> {
        let (config, state) = (file("--config", &args.config)?, file("--state", &args.state)?);
        if is_same(&config, &state) {
            let what = "--config and --state are the same file: the state would be put into it";
            return Err(Failure::Usage(what.to_owned()));
        }
        let rotation = Rotation {
            config,
            state,
            commit: match args.commit {
                When::AtStart => CommitTiming::AtStart,
                When::OnSuccess => CommitTiming::OnSuccess,
            },
            write: args.write,
            held: args.duty.is_some(),
            print: args.print,
            json: global.json,
        };
        match (&args.duty, args.command.is_empty()) {
            (None, _) => {
                without_duty(args, global)?;
                Ok(Self::Alone(rotation))
            }
            (Some(duty), true) => Self::held(args, duty, global, rotation),
            // Its exit code 1 means that somebody holds the duty, and nothing else.
            (Some(duty), false) => {
                Self::held(args, duty, global, rotation).map_err(runner::bad_usage)
            }
        }
    }

    fn held(args: &Args, duty: &str, global: &Global, rotation: Rotation) -> Result<Self, Failure> {
        let mut member = args.member.settings(StoreUrl::parse(&global.store)?)?;
        if args.command.is_empty() {
            if rotation.commit == CommitTiming::OnSuccess {
                return Err(Failure::Usage(NEEDS_COMMAND.to_owned()));
            }
            // It ends at once: success is not worth a line, unless more was asked for.
            if member.observe.level == LogLevel::Info {
                member.observe.level = LogLevel::Warn;
            }
        }
        let settings = RunSettings {
            duty: name(duty, str::parse)?,
            no_wait: args.no_wait,
            member,
            command: args.command.clone(),
        };
        let has_command = !args.command.is_empty();
        Ok(Self::Held(Box::new(settings), RotationWork { rotation, has_command }))
    }
}

/// Takes the path of a file; standard input is none.
fn file(option: &str, given: &Path) -> Result<PathBuf, Failure> {
    match given.to_str() {
        Some("" | "-") => Err(Failure::Usage(format!("{option} takes the path of a file"))),
        _ => path(given),
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// Refuses what says nothing without a duty.
fn without_duty(args: &Args, global: &Global) -> Result<(), Failure> {
    let Member { ttl, grace, drain, require, zone, name, revision, weight, .. } = &args.member;
    let options = [
        ("--store", global.store_given),
        ("--ttl", *ttl != Duration::from_secs(30)),
        ("--grace", grace.is_some()),
        ("--drain", drain.is_some()),
        ("--require", require.is_some()),
        ("--zone", zone.is_some()),
        ("--name", name.is_some()),
        ("--revision", revision.is_some()),
        ("--weight", *weight != 1),
        ("a command", !args.command.is_empty()),
    ];
    match options.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::Usage(format!(
            "{option} needs --duty GROUP/NAME: without a duty nothing is held, and two workers \
             would run the same bucket"
        ))),
    }
}

/// Makes the step, and prints it or runs the command.
pub(super) fn run(settings: Settings) -> Result<ExitCode, Failure> {
    match settings {
        Settings::Alone(rotation) => {
            rotation.print(&rotation.step()?)?;
            Ok(ExitCode::SUCCESS)
        }
        Settings::Held(settings, work) => {
            let around = if work.has_command { runner::around } else { |failure| failure };
            work.rotation.check().map_err(around)?;
            wait_for(runner::run(*settings, Some(Box::new(work))))
        }
    }
}
