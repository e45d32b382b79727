//! `tenure bucket next`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::{Value, json};
use tenure_operate::bucket::{Rotation, RotationStep};
use tenure_supervise::observe::LogLevel;
use tenure_supervise::run::RunSettings;
use tenure_wire::bucket::CommitTiming;

use super::hold::RotationWork;
use crate::args::{Global, name, path};
use crate::failure::Failure;
use crate::output::{shown, to_stderr, to_stdout};
use crate::run::args::MemberArgs;
use crate::{run as runner, wait_for};

const NEEDS_COMMAND: &str = "\
--commit on-success with --duty needs the command of the run behind --: the hold ends with this \
command, and another worker would get the same bucket";

pub(super) const HELP: &str = "\
With a command, the duty is held during the whole run: no other host runs a bucket of this rotation.
The command gets its bucket in TENURE_BUCKET_ID and TENURE_BUCKET_TOTAL, and files with its config
and state in TENURE_BUCKET_CONFIG and TENURE_BUCKET_STATE. Exit codes are those of `tenure run`.";

#[derive(clap::Args)]
pub(crate) struct BucketNextArgs {
    /// Connector config, a JSON object
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Connector state, a JSON object; if the file does not exist, a new rotation begins
    #[arg(long, value_name = "FILE")]
    state: PathBuf,
    /// Point at which a bucket counts as executed
    #[arg(long, value_enum, default_value = "at-start")]
    commit: CommitArg,
    /// Replace the state file atomically
    #[arg(long)]
    write: bool,
    /// Part of the result to print
    #[arg(long, value_enum, default_value = "all", conflicts_with = "command")]
    print: PrintArg,
    /// Keep the rotation in the store under this duty, and hold the duty during the step
    #[arg(long, value_name = "GROUP/NAME")]
    duty: Option<String>,
    /// Fail at once if the duty is held or the store cannot be reached
    #[arg(long, requires = "duty")]
    no_wait: bool,
    #[command(flatten)]
    member: MemberArgs,
    /// Command and arguments to run with the bucket; needs --duty
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CommitArg {
    /// Start of the run; a failed run skips its bucket until the next cycle
    AtStart,
    /// Success of the run; until then the same bucket is next
    OnSuccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrintArg {
    /// One JSON object with config and state
    All,
    /// Config of the run
    Config,
    /// State to store now
    State,
    /// Number of the bucket
    Id,
}

/// Output of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepOutput {
    print: PrintArg,
    json: bool,
}

/// Takes the step, and prints it or runs the command.
pub(super) fn run(args: &BucketNextArgs, global: &Global) -> Result<ExitCode, Failure> {
    let (config, state) = (file("--config", &args.config)?, file("--state", &args.state)?);
    if is_same(&config, &state) {
        let what = "--config and --state are the same file: the state would overwrite the config";
        return Err(Failure::Usage(what.to_owned()));
    }
    let commit = match args.commit {
        CommitArg::AtStart => CommitTiming::AtStart,
        CommitArg::OnSuccess => CommitTiming::OnSuccess,
    };
    let held = args.duty.is_some();
    let rotation = Rotation { config, state, commit, write: args.write, held };
    let output = StepOutput { print: args.print, json: global.json };
    let Some(duty) = &args.duty else {
        without_duty(args, global)?;
        print_step(&rotation, &rotation.step()?, output)?;
        return Ok(ExitCode::SUCCESS);
    };
    let output = args.command.is_empty().then_some(output);
    // With a command, exit code 1 means that another instance holds the duty, and nothing else.
    let settings = settings(args, duty, global).map_err(|failure| match output {
        None => runner::bad_usage(failure),
        Some(_) => failure,
    })?;
    rotation.check().map_err(|error| match output {
        None => runner::around(error.into()),
        Some(_) => error.into(),
    })?;
    wait_for(runner::run(settings, Some(Box::new(RotationWork { rotation, output }))))
}

fn settings(args: &BucketNextArgs, duty: &str, global: &Global) -> Result<RunSettings, Failure> {
    let mut member = args.member.settings(global.url()?)?;
    if args.command.is_empty() {
        if args.commit == CommitArg::OnSuccess {
            return Err(Failure::Usage(NEEDS_COMMAND.to_owned()));
        }
        // Without a command the hold ends at once: do not log it at the default level.
        if member.observe.level == LogLevel::Info {
            member.observe.level = LogLevel::Warn;
        }
    }
    let duty = name(duty, str::parse)?;
    Ok(RunSettings { duty, no_wait: args.no_wait, member, command: args.command.clone() })
}

/// Reads the path of a file; standard input is refused.
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

/// Refuses options that have no effect without a duty.
fn without_duty(args: &BucketNextArgs, global: &Global) -> Result<(), Failure> {
    let options =
        ["store", "ttl", "grace", "drain", "require", "zone", "name", "revision", "weight"];
    let typed = options.iter().find(|option| global.is_typed(option));
    let option = typed.map(|option| format!("--{option}"));
    let command = (!args.command.is_empty()).then(|| "a command".to_owned());
    match option.or(command) {
        None => Ok(()),
        Some(option) => Err(Failure::Usage(format!(
            "{option} needs --duty GROUP/NAME: without a duty nothing is held, and two workers \
             would run the same bucket"
        ))),
    }
}

/// State after a recorded step could not be printed.
const NOT_SHOWN: &str =
    "the bucket counts as executed but was not printed; its turn comes again in the next cycle";

/// Prints a step.
pub(super) fn print_step(
    rotation: &Rotation,
    step: &RotationStep,
    output: StepOutput,
) -> Result<(), Failure> {
    let StepOutput { print, json } = output;
    if !(json && print == PrintArg::All) {
        for notice in &step.notices {
            let warning = if notice.warning { "warning: " } else { "" };
            to_stderr(&format!("{warning}{}", shown(&notice.text)));
        }
    }
    let state = step.state.as_ref().map_or("null", |state| state.as_str().trim());
    let text = match print {
        PrintArg::All => step_document(rotation, step, state, json),
        PrintArg::Config => step.config.as_str().trim().to_owned(),
        PrintArg::State => state.to_owned(),
        PrintArg::Id => step.id.to_string(),
    };
    let recorded = rotation.is_recorded(step) && (rotation.write || rotation.held);
    to_stdout(text + "\n").map(drop).map_err(|failure| match recorded {
        true => failure.keeping(NOT_SHOWN),
        false => failure,
    })
}

/// Formats config and state as one document; both keep their own formatting.
fn step_document(rotation: &Rotation, step: &RotationStep, state: &str, json: bool) -> String {
    // No JSON string contains a line break, so this only indents.
    let inside = |text: &str| text.trim().replace('\n', "\n  ");
    let config = inside(step.config.as_str());
    let mut text = format!("{{\n  \"config\": {config},\n  \"state\": {}", inside(state));
    if let Some(later) = rotation.state_on_success(step) {
        text += &format!(",\n  \"state_on_success\": {}", inside(later.as_str()));
    }
    if json {
        let notices = step.notices.iter();
        let notices = notices.map(|one| json!({ "warning": one.warning, "text": one.text }));
        text += &format!(",\n  \"notices\": {}", Value::from_iter(notices));
    }
    text + "\n}"
}
