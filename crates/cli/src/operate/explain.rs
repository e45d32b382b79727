//! `tenure explain`.

use std::time::Duration;

use tenure_core::store::AuditEntry;
use tenure_core::text::span;
use tenure_operate::explain::{ExplainedMember, Explanation, PastTime, explain};
use tenure_operate::polls::PollStatus;
use tenure_operate::timestamp;

use super::ls::poll_result;
use crate::args::{Global, duration, name};
use crate::failure::Failure;
use crate::output::{note_all, shown};
use crate::table::{or_dash, table};

/// Maximum number of transitions in the text output; JSON has all.
const MAX_TRANSITIONS: usize = 20;

#[derive(clap::Args)]
pub(crate) struct ExplainArgs {
    /// Duty as GROUP/ID
    duty: String,
    /// Explain the state at this time: 2026-02-15T10:00:00Z, or 10m for ten minutes ago
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

impl ExplainArgs {
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        let at = self.at.as_deref().map(read_time).transpose()?;
        if !self.duty.contains('/') {
            let what = "give a duty as GROUP/ID; a group cannot be explained";
            return Err(Failure::Usage(what.to_owned()));
        }
        let duty = name(&self.duty, str::parse)?;
        let explanation = explain(&*global.open().await?, duty, at).await?;
        Ok(global.show(&explanation, || {
            note_all(&explanation.notes);
            text(&explanation)
        }))
    }
}

fn read_time(text: &str) -> Result<PastTime, Failure> {
    if let Ok(ago) = duration(text) {
        return Ok(PastTime::Ago(ago));
    }
    let time = text.parse::<jiff::Timestamp>().map_err(|_| {
        let what = "--at is a time as in 2026-02-15T10:00:00Z, or how long ago as in 10m";
        Failure::Usage(what.to_owned())
    })?;
    Ok(PastTime::At(time.as_millisecond()))
}

fn text(about: &Explanation) -> String {
    let mut text = format!("duty       {}\n", about.duty);
    let mut line = |head: &str, what: String| text.push_str(&format!("{head:<11}{what}\n"));
    if let Some(at) = about.at_unix_ms {
        line("at", timestamp(at));
    }
    line("holder", or_dash(about.holder.as_ref()));
    line("epoch", or_dash(about.epoch));
    if about.holder.is_some() {
        let since = about.since_unix_ms.map(timestamp);
        line("since", since.unwrap_or_else(|| "before the audit trail begins".to_owned()));
    }
    if let Some(PollStatus { report, .. }) = &about.poll {
        let at = timestamp(report.polled_unix_ms);
        let took = span(Duration::from_millis(report.duration_ms));
        line("last poll", format!("{at}, took {took}: {}", poll_result(report, usize::MAX)));
        let success = report.last_success_unix_ms.map(timestamp);
        line("last ok", or_dash(success));
        line("next poll", or_dash(report.next_unix_ms.map(timestamp)));
    }
    match (about.unplanned, &about.should_be) {
        (Some(why), _) => line("should be", format!("with no member: {why}")),
        (None, Some(instance)) => line("should be", format!("with {instance}")),
        (None, None) => line("should be", "with no member: none has room".to_owned()),
    }
    let head = if about.in_force_known { "in force" } else { "perhaps" };
    about.in_force.iter().for_each(|fact| line(head, fact.clone()));
    let heads = [
        "MEMBER", "CHOSEN", "SCORE", ">SHARE", ">GIVEN", ">WEIGHT", "HOLDS", "PIN", "STATE", "WHY",
    ];
    let members = table(heads, about.members.iter().map(row));
    let skipped = about.transitions.len().saturating_sub(MAX_TRANSITIONS);
    let earlier = match skipped {
        0 => String::new(),
        skipped => format!("({skipped} earlier ones are shown with --json)\n"),
    };
    let transitions = about.transitions[skipped..].iter().map(transition_row);
    let transitions = table(["WHEN", "EVENT", "INSTANCE", ">EPOCH", "REASON"], transitions);
    format!("{text}\n{members}\n{transitions}{earlier}")
}

fn row(member: &ExplainedMember) -> [String; 10] {
    let yes = |is| if is { "yes" } else { "no" };
    let state = member.state.join(",");
    [
        member.instance.to_string(),
        or_dash(member.chosen.map(yes)),
        or_dash(member.score.as_ref()),
        or_dash(member.share),
        or_dash(member.given),
        or_dash(member.weight),
        or_dash(member.holds.map(yes)),
        or_dash(member.pin.map(yes)),
        or_dash(Some(state).filter(|state| !state.is_empty())),
        member.sentence.to_owned(),
    ]
}

fn transition_row(entry: &AuditEntry) -> [String; 5] {
    [
        timestamp(entry.unix_ms),
        entry.kind.as_str().to_owned(),
        entry.instance.to_string(),
        or_dash(entry.epoch),
        shown(&entry.reason),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_one_of_the_clock_or_how_long_ago() {
        let read = |text| read_time(text).unwrap();
        assert_eq!(read("10m"), PastTime::Ago(Duration::from_secs(600)));
        assert_eq!(read("2026-02-15T10:00:00.123Z"), PastTime::At(1_771_149_600_123));
        assert_eq!(read("2026-02-15T12:00:00.123+02:00"), PastTime::At(1_771_149_600_123));
        assert!(matches!(read("1960-01-01T00:00:00Z"), PastTime::At(..0)));
        for bad in ["", "yesterday", "2026-02-15", "-10m", "now"] {
            assert!(matches!(read_time(bad), Err(Failure::Usage(_))), "{bad}");
        }
    }
}
