//! What operators have put in force in a group, one line each.

use serde_json::{Value, json};
use tenure_core::engine::GroupConfig;
use tenure_core::{DutyId, GroupName};

use crate::ls::or_nothing;
use crate::table::{Align, Column, lay_out};

/// One thing that is in force.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    what: &'static str,
    on: String,
    how: Option<String>,
}

const COLUMNS: [Column; 3] =
    [Column("IN_FORCE", Align::Left), Column("ON", Align::Left), Column("HOW", Align::Left)];

/// All that is in force.
pub(crate) fn of(name: &GroupName, group: &GroupConfig) -> Vec<Line> {
    let duty = |id: &DutyId| format!("{name}/{id}");
    let line = |what, on, how| Line { what, on, how };
    let mut lines = Vec::new();
    lines.extend(group.all_paused.then(|| line("pause-all", name.to_string(), None)));
    lines.extend(group.paused.iter().map(|id| line("pause", duty(id), None)));
    lines.extend(group.pins.iter().map(|(id, pin)| line("pin", duty(id), Some(pin.to_string()))));
    let drains = group.drained.iter();
    lines.extend(
        drains.map(|(who, how)| line("drain", who.to_string(), Some(how.as_str().to_owned()))),
    );
    lines.extend(group.cordoned.iter().map(|who| line("cordon", who.to_string(), None)));
    let weights = group.weights.iter();
    lines.extend(weights.map(|(who, n)| line("weight", who.to_string(), Some(n.to_string()))));
    lines
}

pub(crate) fn for_people(lines: &[Line]) -> String {
    let row = |line: &Line| [line.what.to_owned(), line.on.clone(), or_nothing(line.how.as_ref())];
    lay_out(&COLUMNS, &lines.iter().map(row).collect::<Vec<_>>())
}

pub(crate) fn for_programs(lines: &[Line]) -> Value {
    let value = |line: &Line| json!({ "what": line.what, "on": line.on, "how": line.how });
    lines.iter().map(value).collect()
}
