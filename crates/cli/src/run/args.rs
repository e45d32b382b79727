//! Arguments of `tenure run` and `tenure poll`, and of every member of a group.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use tenure_core::guarantee::Level;

use crate::args::{SigningArgs, duration, words};
use crate::cron::args::AttemptArgs;
use crate::env;
use crate::observe::ObserveArgs;

#[derive(clap::Args)]
#[command(group(
    clap::ArgGroup::new("each").args(["shards", "targets", "partitions"]).conflicts_with("duty")
))]
pub(crate) struct RunCommandArgs {
    /// Duty to hold, as GROUP/NAME
    #[arg(long, value_name = "GROUP/NAME", required_unless_present = "group")]
    pub(crate) duty: Option<String>,
    /// Run one command per held duty of this group; needs --shards, --targets or --partitions
    #[arg(long, value_name = "GROUP", conflicts_with = "duty", requires = "each")]
    pub(crate) group: Option<String>,
    /// Share the duties 0 to N-1 with other members
    #[arg(long, value_name = "N", requires = "group")]
    pub(crate) shards: Option<u32>,
    /// Share the targets of this list with other members
    // Text, parsed later: clap would repeat an invalid URL, which may hold a password.
    #[arg(long, value_name = "URL", requires = "group")]
    pub(crate) targets: Option<String>,
    /// Work on the partitions of CONNECTOR_PARTITIONS or CONNECTOR_PARTITION_ID; claim each
    #[arg(long, requires = "group")]
    pub(crate) partitions: bool,
    /// Interval between reads of the target list, with --targets
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) list_every: Duration,
    /// Maximum number of duties that this instance holds
    #[arg(long, value_name = "N", requires = "each")]
    pub(crate) room: Option<usize>,
    /// Fail at once if the duty is held or the store cannot be reached
    #[arg(long, conflicts_with = "group")]
    pub(crate) no_wait: bool,
    /// Run the command once per period, as in 24h, and not again until the next one begins
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "group")]
    pub(crate) once_per: Option<Duration>,
    #[command(flatten)]
    pub(crate) attempts: AttemptArgs,
    #[command(flatten)]
    pub(crate) state: StateArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) member: MemberArgs,
    /// Command and arguments; with --group, {} is replaced by the duty
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(clap::Args)]
pub(crate) struct PollArgs {
    /// Source of the targets: redis://..., postgres://..., sqlite:..., http://..., file:... or
    /// list:...
    // Text, parsed later: clap would repeat an invalid URL, which may hold a password.
    #[arg(long, value_name = "URL", env = env::TARGETS)]
    pub(crate) targets: String,
    /// Group of instances that share the targets
    #[arg(long, default_value = "poll")]
    pub(crate) group: String,
    /// Interval between polls of a target that has none of its own
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) every: Duration,
    /// Timeout of one poll of a target that has none of its own: TERM, then KILL after the grace
    /// period
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Attempts after a failed poll, before the next interval
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u32,
    /// Pause before the first of them; it doubles with each, less up to a quarter
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) retry_delay: Duration,
    /// Treatment of polls that were missed while nobody held their target
    #[arg(long, value_enum, default_value = "run")]
    pub(crate) missed: MissedArg,
    /// Interval between reads of the target list
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) list_every: Duration,
    /// Maximum number of concurrent polls
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) jobs: usize,
    #[command(flatten)]
    pub(crate) state: StateArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) member: MemberArgs,
    /// Command and arguments; {} is replaced by the target
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// State file of a command.
#[derive(clap::Args)]
pub(crate) struct StateArgs {
    /// Keep this file in the store: restore it before the command starts, and store each complete
    /// new version of it; for several duties, {} in it is replaced by the duty
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<PathBuf>,
    /// Store the content of the file if the store has none
    #[arg(long, requires = "state")]
    pub(crate) state_import: bool,
}

/// Output of commands that run beside each other.
#[derive(clap::Args)]
pub(crate) struct OutputArgs {
    /// Form of the output of commands that run beside each other
    #[arg(long, value_enum, default_value = "label")]
    pub(crate) output: OutputArg,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum MissedArg {
    /// Make one poll at once, whatever number was missed
    Run,
    /// Make the next poll at its time
    Skip,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum OutputArg {
    /// Each line on standard output, with its duty before it
    Label,
    /// Unchanged, on the streams of tenure
    Plain,
}

/// Options of a member of a group.
#[derive(clap::Args)]
pub(crate) struct MemberArgs {
    /// Lease duration: the duty is reassigned this long after its holder's last renewal
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// Time between TERM and KILL when the lease runs out [default: a sixth of the TTL, at most 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Time that work may take to stop on request [default: half of the TTL]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) drain: Option<Duration>,
    /// Minimum guarantee of the store; the command fails below it
    #[arg(long, value_name = "LEVEL", value_parser = words(Level::ALL, Level::as_str))]
    pub(crate) require: Option<Level>,
    /// Run commands in a PID namespace, so that none of their processes outlives tenure
    #[arg(long)]
    pub(crate) isolate: bool,
    /// Serve the local API at this loopback port, 0 for a free one [default: a Unix socket]
    #[arg(long, value_name = "PORT")]
    pub(crate) api_port: Option<u16>,
    /// Zone of this instance; duties of that zone prefer it
    #[arg(long, value_name = "LABEL")]
    pub(crate) zone: Option<String>,
    /// Name of this instance that survives restarts [default: POD_NAME, HOSTNAME or the host name,
    /// with a number while another member has it]
    #[arg(long, value_name = "LABEL")]
    pub(crate) name: Option<String>,
    /// Deployed revision; while several revisions run, duties move only when a member leaves
    #[arg(long, value_name = "LABEL")]
    pub(crate) revision: Option<String>,
    /// Share of the duties, relative to other members; 0 takes none
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) weight: u32,
    #[command(flatten)]
    pub(crate) signing: SigningArgs,
    #[command(flatten)]
    pub(crate) watch: ObserveArgs,
}
