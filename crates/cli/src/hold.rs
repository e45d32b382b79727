//! `tenure hold`: the hold that this command runs under.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use serde_json::json;
use tenure_core::text::span;
use tenure_supervise::api::ApiClient;

use crate::args::{Global, duration};
use crate::checkpoint::apart;
use crate::failure::Failure;
use crate::output::{shown, to_stdout, value};

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  enough time is left
  1  too little time is left; a renewal may bring more
  2  bad usage, or not run under `tenure run`, `cron` or `poll`
  6  the hold has ended: stop";

/// Too little time is left.
const SHORT: u8 = 1;

#[derive(Subcommand)]
pub(crate) enum HoldCommand {
    /// Check whether an effect can begin now and end before the deadline
    #[command(after_help = EXIT_CODES)]
    Check {
        /// Time that the effect may take
        #[arg(long = "for", value_name = "TIME", default_value = "0s", value_parser = duration)]
        needed: Duration,
    },
    /// Print the hold: duty, epoch, state, time left
    Show,
}

pub(crate) async fn run(command: &HoldCommand, global: &Global) -> Result<ExitCode, Failure> {
    let api = ApiClient::from_env()?.ok_or_else(|| {
        let what =
            "there is no hold: TENURE_API is not set; `tenure run`, `cron` and `poll` set it";
        Failure::Usage(what.to_owned())
    })?;
    match command {
        HoldCommand::Check { needed } => {
            let (enough, left) = api.check(*needed).await.map_err(apart)?;
            let report = json!({ "enough": enough, "remaining_ms": left.as_millis() as u64 });
            to_stdout(global.show(&report, || format!("{} left\n", span(left))))?;
            Ok(if enough { ExitCode::SUCCESS } else { ExitCode::from(SHORT) })
        }
        HoldCommand::Show => {
            let hold = api.hold().await.map_err(apart)?;
            to_stdout(global.show(&value(&hold), || {
                let (left, state) = (Duration::from_millis(hold.remaining_ms), hold.state.as_str());
                let (duty, instance) = (shown(&hold.duty), shown(&hold.instance));
                format!("{duty} epoch {} {state}, {} left, as {instance}\n", hold.epoch, span(left))
            }))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
