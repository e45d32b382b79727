//! Arguments of scheduled runs.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use tenure_schedule::{InterruptedPolicy, MissedPolicy, SchedulePolicy};

use crate::args::duration;
use crate::failure::Failure;
use crate::limits::{MAX_AGE, check_count, check_time};
use crate::run::args::{MemberArgs, StateArgs};

const MIN_TIME: Duration = Duration::from_secs(1);
const MAX_RETRIES: usize = 1_000;
const MIN_ON_TIME: Duration = Duration::from_secs(60);

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  128 plus the number of the signal that ended it, or that of the command if one was running
  2    bad usage
  125  tenure itself failed";

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct CronArgs {
    #[command(subcommand)]
    pub(crate) subcommand: Option<CronCommand>,
    /// Cron expression, in quotes: minute hour day-of-month month day-of-week, or @daily
    #[arg(required = true, num_args = 1.., value_name = "EXPRESSION")]
    pub(crate) expression: Vec<String>,
    /// Duty to hold, as GROUP/NAME: one for each schedule
    #[arg(long, value_name = "GROUP/NAME", required_unless_present = "dry_run")]
    pub(crate) duty: Option<String>,
    /// Occurrences whose time has passed without a run
    #[arg(long, value_enum, default_value = "run")]
    pub(crate) missed: MissedRunsArg,
    /// Start nothing later than this after its time [default: no limit; with --missed skip twice
    /// the TTL, at least 1m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) deadline: Option<Duration>,
    #[command(flatten)]
    pub(crate) attempts: AttemptArgs,
    /// Print the next occurrences and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Number of occurrences to print
    #[arg(long, value_name = "N", default_value_t = 10, requires = "dry_run")]
    pub(crate) next: usize,
    /// Print occurrences after this time, as in 2026-03-28T00:00:00Z [default: now]
    #[arg(long, value_name = "TIME", requires = "dry_run")]
    pub(crate) from: Option<String>,
    #[command(flatten)]
    pub(crate) state: StateArgs,
    #[command(flatten)]
    pub(crate) member: MemberArgs,
    /// Command and arguments
    #[arg(last = true, required_unless_present = "dry_run", value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Subcommand)]
pub(crate) enum CronCommand {
    /// List schedules with their last and next run
    Ls {
        /// Show only this group
        group: Option<String>,
    },
}

/// Attempts at an occurrence.
#[derive(clap::Args)]
pub(crate) struct AttemptArgs {
    /// Time zone of the schedule, as in Europe/Paris
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) tz: String,
    /// An occurrence whose holder died
    #[arg(long, value_enum, default_value = "rerun")]
    interrupted: InterruptedArg,
    /// Attempts after a failed one, until the next occurrence is due
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Pause before the first of them; it doubles with each, up to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    retry_delay: Duration,
}

impl AttemptArgs {
    /// Names of the options.
    pub(crate) const OPTIONS: [&str; 4] = ["tz", "interrupted", "retries", "retry-delay"];

    /// Checks the limits, and returns the policies.
    pub(crate) fn policy(&self) -> Result<SchedulePolicy, Failure> {
        check_count("--retries", self.retries as usize, 0, MAX_RETRIES)?;
        check_time("--retry-delay", self.retry_delay, Duration::from_millis(1), MAX_AGE)?;
        Ok(SchedulePolicy {
            interrupted: match self.interrupted {
                InterruptedArg::Rerun => InterruptedPolicy::Rerun,
                InterruptedArg::Skip => InterruptedPolicy::Skip,
            },
            missed: MissedPolicy::Newest,
            deadline: None,
            retries: self.retries,
            retry_delay: self.retry_delay,
        })
    }
}

impl CronArgs {
    /// Checks the limits, and returns the policies.
    pub(crate) fn policy(&self) -> Result<SchedulePolicy, Failure> {
        if let Some(deadline) = self.deadline {
            check_time("--deadline", deadline, MIN_TIME, MAX_AGE)?;
        }
        let on_time = MIN_ON_TIME.max(self.member.ttl.saturating_mul(2));
        let (missed, default) = match self.missed {
            MissedRunsArg::Run => (MissedPolicy::Newest, None),
            MissedRunsArg::Skip => (MissedPolicy::Newest, Some(on_time)),
            MissedRunsArg::All => (MissedPolicy::All, None),
        };
        let deadline = self.deadline.or(default);
        Ok(SchedulePolicy { missed, deadline, ..self.attempts.policy()? })
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum MissedRunsArg {
    /// Run the newest, once
    Run,
    /// Run none that is late
    Skip,
    /// Run each in order, at most 1,000
    All,
}

#[derive(Clone, Copy, ValueEnum)]
enum InterruptedArg {
    /// Run it again on another member
    Rerun,
    /// Do not run it again
    Skip,
}
