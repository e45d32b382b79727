//! `tenure cron`: runs a command at the times of a cron expression.

pub(crate) mod args;
mod ls;

use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::json;
use tenure_duty::process;
use tenure_schedule::{ClockChange, RunSchedule, utc};
use tenure_supervise::schedule::ScheduledWork;

use crate::args::Global;
use crate::failure::Failure;
use crate::limits::check_count;
use crate::output::to_stdout;
use crate::table::table;
use crate::{run as runner, wait_for};
use args::{CronArgs, CronCommand};

/// Limit of `--next`.
const MAX_PRINTED: usize = 10_000;

/// Runs `tenure cron`.
pub(crate) fn run(args: &CronArgs, global: &Global) -> Result<ExitCode, Failure> {
    if let Some(CronCommand::Ls { group }) = &args.subcommand {
        to_stdout(wait_for(ls::run(group.as_deref(), global))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let schedule = RunSchedule::cron(&args.expression.join(" "), &args.attempts.tz)?;
    let policy = args.policy()?;
    if args.dry_run {
        to_stdout(occurrences(&schedule, args, global)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let duty = args.duty.as_deref().unwrap_or_default();
    let settings = runner::settings(duty, &args.member, &args.state, &args.command, global);
    let settings = settings.map_err(runner::bad_usage)?;
    wait_for(runner::run(settings, Some(Box::new(ScheduledWork { schedule, policy }))))
}

/// Formats the next occurrences.
fn occurrences(
    schedule: &RunSchedule,
    args: &CronArgs,
    global: &Global,
) -> Result<String, Failure> {
    check_count("--next", args.next, 1, MAX_PRINTED)?;
    let from = args.from.as_deref().map(read_time).transpose()?;
    let from = from.unwrap_or_else(process::unix_ms);
    let rows: Vec<[String; 3]> = schedule
        .after(from)
        .take(args.next)
        .map(|at| {
            let note = schedule.clock_change(at).map_or("", ClockChange::sentence);
            [schedule.local(at), utc(at), note.to_owned()]
        })
        .collect();
    let entries = rows.iter().map(|[local, at, note]| {
        let note = Some(note).filter(|note| !note.is_empty());
        json!({ "local": local, "scheduled_at": at, "clock_change": note })
    });
    let report = json!({
        "schedule": schedule.text(),
        "time_zone": schedule.zone_name(),
        "occurrences": entries.collect::<Vec<_>>(),
    });
    Ok(global.show(&report, || table(["LOCAL", "UTC", "NOTE"], rows)))
}

fn read_time(text: &str) -> Result<u64, Failure> {
    let at = text.parse::<Timestamp>().ok().and_then(|at| u64::try_from(at.as_millisecond()).ok());
    at.ok_or_else(|| Failure::Usage("--from is a time as in 2026-03-28T00:00:00Z".to_owned()))
}
