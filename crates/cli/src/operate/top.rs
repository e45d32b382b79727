//! `tenure top`.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use rustix::termios::{Winsize, tcgetwinsize};
use serde_json::{Value, json};
use tenure_core::store::{AuditEntry, AuditKind};
use tenure_core::text::counted;
use tenure_core::{Code, Store, StoreError};
use tenure_duty::process;
use tenure_operate::polls::{FailingTarget, PollTotals};
use tenure_operate::top::{DutyCounts, GroupReport, GroupStatus, Monitor, MonitoredMember};
use tenure_operate::{ErrorSummary, timestamp};
use tenure_supervise::Signals;
use tokio::time::{MissedTickBehavior, interval};

use super::{duties, end_signal};
use crate::args::{Global, duration, group_name};
use crate::failure::Failure;
use crate::limits::check_time;
use crate::output::{shown, to_stdout};
use crate::table::{or_dash, table};

/// Maximum number of recent moves in the text output; JSON has all.
const MAX_MOVES: usize = 8;
/// Moves the cursor to the top left. Overwriting instead of clearing avoids flicker.
const HOME: &str = "\u{1b}[H";
const END_OF_LINE: &str = "\u{1b}[K";
const BELOW: &str = "\u{1b}[J";

#[derive(clap::Args)]
pub(crate) struct TopArgs {
    /// Show only this group
    group: Option<String>,
    /// Refresh interval, 50ms to 24h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    every: Duration,
    /// Print once and exit
    #[arg(long)]
    once: bool,
}

impl TopArgs {
    /// Prints frames until a signal or a closed pipe; returns no further text.
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        check_time("--every", self.every, Duration::from_millis(50), Duration::from_secs(86_400))?;
        let group = self.group.as_deref().map(group_name).transpose()?;
        let url = global.url()?.to_string();
        let mut signals = Signals::listen().map_err(anyhow::Error::from)?;
        let repaint = !global.json && !self.once && io::stdout().is_terminal();
        if repaint {
            to_stdout("\u{1b}[2J")?;
        }
        let (mut monitor, mut store) = (Monitor::new(group), None);
        let mut succeeded = false;
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let read = async {
                ticks.tick().await;
                read(global, &mut store, &mut monitor).await
            };
            let read = tokio::select! {
                read = read => read,
                _ = end_signal(&mut signals) => return Ok(String::new()),
            };
            match &read {
                Err(error) if self.once || (!succeeded && !is_away(error)) => {
                    return Err(error.clone().into());
                }
                // Open the store again, which repairs the connection or returns the cause.
                Err(_) => store = None,
                Ok(_) => succeeded = true,
            }
            let frame = Frame { unix_ms: process::unix_ms(), store: url.clone(), read };
            let text = match (global.json, repaint) {
                (true, _) => format!("{}\n", frame.value()),
                (false, true) => painted(&frame.text(), tcgetwinsize(io::stdout()).ok()),
                (false, false) => format!("{}\n", frame.text()),
            };
            if !to_stdout(&text)? || self.once {
                return Ok(String::new());
            }
        }
    }
}

/// Reads the groups; opens the store if it is not open.
async fn read(
    global: &Global,
    store: &mut Option<Arc<dyn Store>>,
    monitor: &mut Monitor,
) -> Result<Vec<GroupReport>, StoreError> {
    let store = match store {
        Some(store) => store,
        None => {
            monitor.reset();
            store.insert(global.open().await?)
        }
    };
    monitor.read(&**store).await
}

/// Whether it is worth waiting for a store that was never reached.
fn is_away(error: &StoreError) -> bool {
    matches!(error.code(), Code::Unreachable | Code::Lost | Code::Busy)
}

/// Formats text that overwrites the previous frame, cut to the window.
fn painted(text: &str, window: Option<Winsize>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (fits, more) = match window {
        // A terminal that does not know its size reports zero.
        Some(size) if size.ws_row > 0 && size.ws_col > 0 => clip(&lines, size),
        _ => (&lines[..], None),
    };
    let more = more.as_deref();
    let lines = fits.iter().copied().chain(more).map(|line| format!("{line}{END_OF_LINE}\n"));
    format!("{HOME}{}{BELOW}", lines.collect::<String>())
}

/// Returns the lines that fit, and a last line that counts the rest. The cursor is in the last row.
fn clip<'a>(lines: &'a [&'a str], size: Winsize) -> (&'a [&'a str], Option<String>) {
    let room = usize::from(size.ws_row) - 1;
    // The terminal breaks long lines.
    let rows = |line: &&str| line.chars().count().div_ceil(size.ws_col.into()).max(1);
    if lines.iter().map(rows).sum::<usize>() <= room {
        return (lines, None);
    }
    let ends = lines.iter().scan(0, |end, line| {
        *end += rows(line);
        Some(*end)
    });
    let fits = ends.take_while(|end| *end < room).count();
    let more = format!("... {}", counted(lines.len() - fits, "more line", "more lines"));
    // The terminal may be narrower than this line.
    (&lines[..fits], Some(more.chars().take(size.ws_col.into()).collect()))
}

/// State of all groups at one time.
struct Frame {
    unix_ms: u64,
    store: String,
    read: Result<Vec<GroupReport>, StoreError>,
}

impl Frame {
    fn text(&self) -> String {
        let head = format!("{}  {}", timestamp(self.unix_ms), shown(&self.store));
        match &self.read {
            Err(error) => {
                let what = shown(&error.problem().to_string());
                format!("{head}\nthe store does not answer, retrying: {what}\n")
            }
            Ok(groups) if groups.is_empty() => format!("{head}\nno groups yet\n"),
            Ok(groups) => {
                let groups: String = groups.iter().map(group_text).collect();
                format!("{head}\n{groups}")
            }
        }
    }

    fn value(&self) -> Value {
        json!({
            "unix_ms": self.unix_ms,
            "store": self.store,
            "away": self.read.is_err(),
            "error": self.read.as_ref().err().map(ErrorSummary::from),
            "groups": self.read.as_ref().ok(),
        })
    }
}

fn group_text(report: &GroupReport) -> String {
    let status = match report {
        GroupReport { status: Ok(status), .. } => status,
        GroupReport { group, status: Err(error) } => {
            let what = shown(&error.problem().to_string());
            return format!("\ngroup {group}  cannot be read: {what}\n");
        }
    };
    let DutyCounts { known, held, free, paused } = status.duties;
    let gone = if status.has_targets { " or no longer listed" } else { "" };
    let heads = ["MEMBER", ">WEIGHT", "ZONE", ">HOLDS", ">ROOM", ">REMAINING_MS", "STATE"];
    let members = table(heads, status.members.iter().map(member_row));
    let counts = [AuditKind::Granted, AuditKind::Released, AuditKind::Expired]
        .map(|kind| format!("{} {}", status.count(kind), kind.as_str()));
    format!(
        "\ngroup {}  layout {}\n{}: {held} held, {free} free{gone}, {paused} paused\n{}\
         last minute: {}\n\n{members}{}",
        report.group,
        or_dash(status.layout),
        duties(known),
        status.polls.as_ref().map_or_else(String::new, poll_line),
        counts.join(", "),
        moves(status),
    )
}

/// Sums up the last polls of a group, and names the worst target.
fn poll_line(totals: &PollTotals) -> String {
    let PollTotals { succeeding, failing, worst, .. } = totals;
    let worst =
        worst.first().map_or_else(String::new, |FailingTarget { target, failures, .. }| {
            format!(", worst {} ({failures} in a row)", shown(target))
        });
    format!("polls: {succeeding} succeeding, {failing} failing{worst}\n")
}

fn member_row(member: &MonitoredMember) -> [String; 7] {
    let state = member.state.join(",");
    [
        member.instance.to_string(),
        or_dash(member.weight),
        or_dash(member.zone.as_ref()),
        member.holds.to_string(),
        or_dash(member.room.filter(|room| *room < usize::MAX)),
        member.remaining_ms.to_string(),
        or_dash(Some(state).filter(|state| !state.is_empty())),
    ]
}

/// Formats the newest moves of the last minute.
fn moves(status: &GroupStatus) -> String {
    if status.recent.is_empty() {
        return String::new();
    }
    let newest = &status.recent[status.recent.len().saturating_sub(MAX_MOVES)..];
    let row = |entry: &AuditEntry| {
        [
            timestamp(entry.unix_ms),
            entry.kind.as_str().to_owned(),
            or_dash(entry.duty.as_ref()),
            entry.instance.to_string(),
            shown(&entry.reason),
        ]
    };
    let heads = ["WHEN", "EVENT", "DUTY", "INSTANCE", "REASON"];
    format!("\n{}", table(heads, newest.iter().map(row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_not_longer_than_the_window() {
        let size = |ws_row, ws_col| Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        let text = "one\ntwo and more\n\nfour\n";
        let plain = |window| painted(text, window).replace(END_OF_LINE, "");
        let whole = format!("{HOME}{text}{BELOW}");
        for window in [None, Some(size(0, 0)), Some(size(5, 80)), Some(size(6, 11))] {
            assert_eq!(plain(window), whole, "{window:?}");
        }
        let cut = |lines: &str| format!("{HOME}{lines}{BELOW}");
        assert_eq!(plain(Some(size(4, 80))), cut("one\ntwo and more\n... 2 more lines\n"));
        // The second line takes two rows.
        assert_eq!(plain(Some(size(4, 11))), cut("one\n... 3 more \n"));
        assert_eq!(plain(Some(size(2, 80))), cut("... 4 more lines\n"));
    }
}
