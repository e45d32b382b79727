//! `tenure cron ls`.

use serde_json::json;
use tenure_operate::schedules::{OccurrenceListing, ScheduleListing, schedules};

use crate::args::{Global, group_name};
use crate::failure::Failure;
use crate::output::{shown, to_stderr};
use crate::table::{or_dash, table};

pub(super) async fn run(only: Option<&str>, global: &Global) -> Result<String, Failure> {
    let only = only.map(group_name).transpose()?;
    let listings = schedules(&*global.open().await?, only).await?;
    Ok(global.show(&json!({ "schedules": listings }), || {
        if listings.is_empty() {
            to_stderr("there are no schedules yet");
        }
        let heads = ["DUTY", "SCHEDULE", "ZONE", "LAST", "STATE", ">EXIT", "NEXT", "HOLDER"];
        table(heads, listings.iter().map(row))
    }))
}

fn row(listing: &ScheduleListing) -> [String; 8] {
    let last = listing.last.as_ref();
    let next = or_dash(listing.next_at.as_deref().map(short));
    [
        listing.duty.to_string(),
        shown(&listing.schedule),
        shown(&listing.time_zone),
        or_dash(last.map(|last| short(&last.scheduled_at))),
        or_dash(last.map(state)),
        or_dash(last.and_then(|last| last.exit_code)),
        if listing.due { format!("{next} (due)") } else { next },
        or_dash(listing.holder.as_ref()),
    ]
}

/// Nominal times are whole seconds.
fn short(time: &str) -> String {
    time.replace(".000Z", "Z")
}

fn state(last: &OccurrenceListing) -> String {
    match last.attempt {
        0 | 1 => last.state.to_owned(),
        attempt => format!("{} (attempt {attempt})", last.state),
    }
}
