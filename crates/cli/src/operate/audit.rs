//! `tenure audit`.

use tenure_operate::timeline::{Timeline, TimelineEvent, TimelineOptions, timeline};
use tenure_operate::timestamp;

use super::{read_time, scope};
use crate::args::Global;
use crate::failure::Failure;
use crate::limits::check_count;
use crate::output::{note_all, shown, to_stderr};
use crate::progress;
use crate::table::{or_dash, table};

/// Maximum of `--limit`, which bounds the memory of the command.
const MAX_EVENTS: usize = 100_000;

#[derive(clap::Args)]
pub(crate) struct TimelineArgs {
    /// Group, or duty as GROUP/ID
    #[arg(value_name = "GROUP[/ID]")]
    of: String,
    /// Begin at this time: 2026-02-15T10:00:00Z, or 1h for an hour ago
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// End at this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Maximum number of events: the newest ones, up to 100000
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
}

impl TimelineArgs {
    pub(crate) async fn run(&self, global: &Global) -> Result<String, Failure> {
        check_count("--limit", self.limit, 1, MAX_EVENTS)?;
        let read = |option, text: &Option<String>| {
            text.as_deref().map(|text| read_time(option, text)).transpose()
        };
        let options = TimelineOptions {
            scope: scope(&self.of)?,
            since: read("--since", &self.since)?,
            until: read("--until", &self.until)?,
            limit: self.limit,
        };
        let mut observe = |done| progress::describe(&format!("{done}"));
        // Checkpoints count as they are stored, whatever their signatures.
        let timeline = timeline(&*global.open_bare().await?, &options, &mut observe).await?;
        Ok(global.show(&timeline, || {
            note_all(&timeline.notes);
            text(&timeline)
        }))
    }
}

fn text(timeline: &Timeline) -> String {
    if timeline.omitted > 0 {
        let older = timeline.omitted;
        to_stderr(&format!("note: {older} older events are not shown; --limit shows more"));
    }
    let mut rows = timeline.events.iter().map(row).peekable();
    if rows.peek().is_none() {
        to_stderr(&format!("{} has no events in this period", timeline.of));
    }
    table(["TIME", "EVENT", "DUTY", ">EPOCH", "INSTANCE", "DETAIL"], rows)
}

fn row(event: &TimelineEvent) -> [String; 6] {
    let detail = match event.commit {
        Some((version, bytes)) => format!("version {version}, {bytes} bytes"),
        None => shown(&event.reason),
    };
    [
        timestamp(event.unix_ms),
        event.event.to_owned(),
        or_dash(event.duty.as_ref()),
        or_dash(event.epoch),
        event.instance.to_string(),
        detail,
    ]
}
