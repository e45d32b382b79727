//! `tenure checkpoint`: arguments and output.

mod get;
mod history;
mod moving;
mod put;
mod rewind;
mod verify;

use clap::{Subcommand, ValueEnum};
use tenure_core::guarantee::Level;
use tenure_core::{Code, DutyKey, GroupName, StoreError, Version};
use tenure_operate::checkpoint::RewindOptions;
use tenure_operate::pause::Scope;

use crate::args::{Global, SigningArgs, name, words};
use crate::failure::Failure;
use crate::operate::scope;
use crate::signing::SigningSettings;

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  refused or failed; the message says what was left unchanged
  2  bad usage
  3  outcome unknown: the checkpoint may be stored
  4  put: another version is stored
  5  get: the duty has no checkpoint yet
  6  the hold is not valid any more, or another instance holds the duty
  7  the store cannot be reached";

const FENCED: u8 = 6;
const UNREACHABLE: u8 = 7;

/// Gives an error the exit code by which scripts tell it from others.
pub(crate) fn apart(error: StoreError) -> Failure {
    let exit = match error.code() {
        _ if error.is_unknown() => None,
        Code::Fenced | Code::Held => Some(FENCED),
        Code::Unreachable | Code::Lost => Some(UNREACHABLE),
        _ => None,
    };
    exit.into_iter().fold(error.into(), Failure::exiting)
}

/// The same for an error of a read.
fn unread(error: StoreError) -> Failure {
    apart(error.of_read())
}

#[derive(Subcommand)]
pub(crate) enum CheckpointCommand {
    /// Print the newest checkpoint, byte for byte
    #[command(after_help = EXIT_CODES)]
    Get {
        /// Duty as GROUP/ID, with --schema shards a GROUP; under `tenure run` its own by default
        name: Option<String>,
        /// Form of the printed document
        #[arg(long, value_enum, default_value = "plain")]
        schema: Schema,
    },
    /// Store a checkpoint, under the hold of `tenure run` or under a claim of its own
    #[command(after_help = EXIT_CODES)]
    Put(put::PutArgs),
    /// List the stored versions of a checkpoint, newest first
    History {
        /// Duty as GROUP/ID
        duty: String,
    },
    /// Verify the signatures of checkpoints and their histories
    Verify {
        /// Duties (GROUP/ID) or groups (GROUP); all if omitted
        names: Vec<String>,
    },
    /// Restore an older version of a checkpoint as the newest
    Rewind {
        /// Duty as GROUP/ID
        duty: String,
        /// Version to restore, from `tenure checkpoint history`
        #[arg(long, value_name = "VERSION")]
        to: u64,
        /// Take the duty from its holder
        #[arg(long)]
        force: bool,
        /// Print what would happen and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Move checkpoints to another store; repeat it after an interruption
    Move(MoveArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Schema {
    /// Cursor only
    Plain,
    /// Cursor with its lease
    Lease,
    /// Cursors of all shards of a group
    Shards,
}

#[derive(clap::Args)]
pub(crate) struct MoveArgs {
    /// URL of the source store
    #[arg(value_name = "FROM")]
    from: String,
    /// URL of the destination store; created if missing
    #[arg(value_name = "TO")]
    to: String,
    /// Duties (GROUP/ID) or groups (GROUP); all if omitted
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Name in the destination, for one duty or with --merge; with --schema shards, a GROUP
    #[arg(long = "as", value_name = "GROUP/ID")]
    rename: Option<String>,
    /// Merge all cursors into one: the least advanced
    #[arg(long, requires = "rename")]
    merge: bool,
    /// Form of the documents in FROM
    #[arg(long, value_enum, default_value = "plain")]
    schema: Schema,
    /// Take duties from their holders, and overwrite checkpoints in TO
    #[arg(long)]
    force: bool,
    /// Print what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Minimum guarantee of TO; the command fails below it
    #[arg(long, value_name = "LEVEL", value_parser = words(Level::ALL, Level::as_str))]
    require: Option<Level>,
}

pub(crate) async fn run(
    command: &CheckpointCommand,
    signing: &SigningArgs,
    global: &Global,
) -> Result<String, Failure> {
    let signing = &SigningSettings::new(signing)?;
    let duty_of = |text: &str| name(text, str::parse::<DutyKey>);
    match command {
        CheckpointCommand::Move(args) => moving::run(args, signing, global.json).await,
        CheckpointCommand::Get { name: Some(text), schema: Schema::Shards } => {
            get::shards(&name(text, GroupName::unescape)?, signing, global).await
        }
        CheckpointCommand::Get { name: Some(name), schema } => {
            get::run(&duty_of(name)?, *schema == Schema::Lease, signing, global).await
        }
        CheckpointCommand::Get { name: None, schema: Schema::Plain } => {
            get::under_hold(global).await
        }
        CheckpointCommand::Get { name: None, .. } => {
            Err(Failure::Usage("--schema needs a name".to_owned()))
        }
        CheckpointCommand::Put(args) => put::run(args, signing, global).await,
        CheckpointCommand::History { duty } => history::run(&duty_of(duty)?, signing, global).await,
        CheckpointCommand::Verify { names } => verify::run(&scopes(names)?, signing, global).await,
        CheckpointCommand::Rewind { duty, to, force, dry_run } => {
            let (duty, to) = (duty_of(duty)?, Version::new(*to)?);
            let options = RewindOptions { duty, to, force: *force, dry_run: *dry_run };
            rewind::run(options, signing, global).await
        }
    }
}

fn scopes(names: &[String]) -> Result<Vec<Scope>, Failure> {
    names.iter().map(|name| scope(name)).collect()
}
