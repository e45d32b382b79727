//! States and answers without what differs between any two runs: times, and numbers by sequence.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use crate::state::RowSnapshot;

pub(crate) const SECOND: i64 = 1_000_000;
/// Times are rounded to this: a schedule takes much less, and prepared times differ by more.
const GRAIN: i64 = 600 * SECOND;
/// Seconds by which the clock is set ahead: more than the six hours that the lease of session `l`
/// has left, less than all other leases. All spans that are added to a time are full hours, so
/// times that were taken from this clock can be told by the half hour, and are shown as from now.
pub(crate) const CLOCK_LEAD_SECONDS: i64 = 7 * 3_600 + 1_800;
/// Numbers from here on are times, or come from one.
const BIG: i64 = 1_000_000_000_000;

/// Columns with numbers of one sequence: only their order counts.
const NUMBERED: &[&str] = &["bound_id", "counted_id", "arrival"];
/// Columns with time spans: only whether there is one counts.
const SPANS: &[&str] = &["interval_micros", "drift_micros"];
/// Numbers in answers that depend on the time.
const TIMED: &[&str] = &["retry_after: ", "behind: ", "interval: Some(", "drift: ", "drift: Some("];

/// The rows of each table as text, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View(BTreeMap<String, Vec<String>>);

/// Returns the view of a state; `before` is the prepared one.
pub(crate) fn view(state: &RowSnapshot, before: &RowSnapshot) -> View {
    let known: BTreeSet<i64> = numbers(before).times;
    let numbers = numbers(state);
    let mut tables = BTreeMap::new();
    for (table, rows) in &state.rows {
        let mut rows: Vec<&Value> = rows.iter().collect();
        rows.sort_by_key(|row| row.get("seq").and_then(Value::as_i64));
        let mut shown: Vec<String> = Vec::new();
        let mut turns: BTreeMap<String, usize> = BTreeMap::new();
        for row in rows {
            let Some(fields) = row.as_object().filter(|_| !is_placeholder(table, row)) else {
                continue;
            };
            let mut text = String::new();
            for (name, value) in fields {
                let Some(value) = field(table, name, value, &numbers, &known, state.now) else {
                    continue;
                };
                // Writing to a string cannot fail.
                let _ = write!(text, "{name}={value} ");
            }
            if table == "audit" {
                // The records of one duty have an order.
                let turn = turns.entry(fields["duty"].to_string()).or_default();
                *turn += 1;
                let _ = write!(text, "turn={turn}");
            }
            shown.push(text.trim_end().to_owned());
        }
        shown.sort();
        tables.insert(table.clone(), shown);
    }
    View(tables)
}

#[derive(Default)]
struct Numbers {
    times: BTreeSet<i64>,
    numbered: BTreeSet<i64>,
    big: BTreeSet<i64>,
}

fn numbers(state: &RowSnapshot) -> Numbers {
    let mut found = Numbers::default();
    for (table, rows) in &state.rows {
        for (name, value) in rows.iter().filter_map(Value::as_object).flatten() {
            if let Some(time) = time(value) {
                found.times.insert(time);
            }
            match value.as_i64() {
                Some(number) if is_numbered(table, name) => found.numbered.insert(number),
                Some(number) if number >= BIG => found.big.insert(number),
                _ => false,
            };
        }
    }
    found
}

fn is_numbered(table: &str, column: &str) -> bool {
    NUMBERED.contains(&column) || (table == "connector_heartbeat_log" && column == "id")
}

/// Whether a row is one that a claim which granted nothing leaves; it means nothing.
fn is_placeholder(table: &str, row: &Value) -> bool {
    table == "hold" && row.get("epoch").and_then(Value::as_i64) == Some(0)
}

fn time(value: &Value) -> Option<i64> {
    value.as_str()?.strip_prefix('@')?.parse().ok()
}

fn field(
    table: &str,
    name: &str,
    value: &Value,
    numbers: &Numbers,
    known: &BTreeSet<i64>,
    now: i64,
) -> Option<String> {
    if name == "seq" || (table == "token_audit_log" && name == "id") {
        return None;
    }
    if let Some(time) = time(value) {
        return Some(label(time, known, now));
    }
    let Some(number) = value.as_i64() else { return Some(answer(&value.to_string())) };
    let rank = |of: &BTreeSet<i64>| of.range(..number).count();
    Some(if SPANS.contains(&name) {
        "some".to_owned()
    } else if is_numbered(table, name) {
        format!("#{}", rank(&numbers.numbered))
    } else if number >= BIG {
        format!("big#{}", rank(&numbers.big))
    } else {
        number.to_string()
    })
}

/// Names a time: as it was prepared, or by its distance from now.
fn label(time: i64, known: &BTreeSet<i64>, now: i64) -> String {
    if known.contains(&time) {
        return format!("@{time}");
    }
    let aligned = [("day", 86_400), ("hour", 3_600)];
    if let Some((name, _)) = aligned.iter().find(|(_, step)| time % (step * SECOND) == 0) {
        return format!("@{name}");
    }
    let seconds = (time - now + GRAIN / 2).div_euclid(GRAIN) * GRAIN / SECOND;
    let seconds = if (seconds - CLOCK_LEAD_SECONDS) % 3_600 == 0 {
        seconds - CLOCK_LEAD_SECONDS
    } else {
        seconds
    };
    if seconds == 0 { "@now".to_owned() } else { format!("@now{seconds:+}s") }
}

/// Returns a text without times.
pub(crate) fn answer(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_inside = shown.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
        if first.is_ascii_digit() && !is_inside {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (number, after) = rest.split_at(end);
            let unit = ["ms", "µs", "ns", "s"].iter().find(|unit| after.starts_with(**unit));
            if let Some(unit) = unit {
                shown.push_str("TIME");
                rest = &after[unit.len()..];
                continue;
            }
            let is_time = number.len() >= 13 || TIMED.iter().any(|name| shown.ends_with(name));
            shown.push_str(if is_time { "TIME" } else { number });
            rest = after;
            continue;
        }
        shown.push(first);
        rest = &rest[first.len_utf8()..];
    }
    shown
}

impl View {
    /// Whether each table is as in one of two states.
    pub(crate) fn is_between(&self, one: &Self, other: &Self) -> bool {
        let is_as = |of: &Self, table, rows| of.0.get(table) == Some(rows);
        self.0.iter().all(|(table, rows)| is_as(one, table, rows) || is_as(other, table, rows))
    }

    /// Returns the rows that only one of two states has: `-` of this one, `+` of the other.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (table, rows) in &self.0 {
            let nothing = Vec::new();
            let others = other.0.get(table).unwrap_or(&nothing);
            let gone = rows.iter().filter(|row| !others.contains(row));
            let new = others.iter().filter(|row| !rows.contains(row));
            lines.extend(gone.map(|row| format!("- {table}: {row}")));
            lines.extend(new.map(|row| format!("+ {table}: {row}")));
            if rows.len() != others.len() {
                lines.push(format!("  {table}: {} rows, then {}", rows.len(), others.len()));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_left_out_of_answers_and_other_numbers_stay() {
        let given = "Held { by: \"d1\", remaining: 3599.5s, epoch: Epoch(7), at: \
                     1771151400000000, id: 00000000-0000-4000-8000-000000000012, retry_after: 9 }";
        let shown = "Held { by: \"d1\", remaining: TIME, epoch: Epoch(7), at: \
                     TIME, id: 00000000-0000-4000-8000-000000000012, retry_after: TIME }";
        assert_eq!(answer(given), shown);
    }

    #[test]
    fn times_within_texts_of_a_state_are_left_out() {
        let state = |floor: i64| {
            let text = format!("{{\"last\" : 2, \"floor\" : {floor}}}");
            let rows = [("t".to_owned(), vec![serde_json::json!({ "metadata": text })])].into();
            RowSnapshot { now: 1_771_151_400 * SECOND, rows }
        };
        let (one, other) = (state(1_771_151_401_000_000), state(1_771_151_402_000_000));
        assert_eq!(view(&one, &one), view(&other, &one));
    }

    #[test]
    fn states_are_compared_row_by_row() {
        let state = |rows: &str| RowSnapshot {
            now: 1_771_151_400 * SECOND,
            rows: [("t".to_owned(), serde_json::from_str(rows).unwrap())].into(),
        };
        let before = state(r#"[{"a": 1, "at": "@5"}]"#);
        let same = state(r#"[{"a": 1, "at": "@5"}]"#);
        assert_eq!(view(&before, &before), view(&same, &before));
        let later = state(r#"[{"a": 1, "at": "@1771151400000123"}]"#);
        let lines = view(&before, &before).differences(&view(&later, &before));
        assert_eq!(lines, ["- t: a=1 at=\"@5\"", "+ t: a=1 at=@now"].map(|it| it.replace('"', "")));
    }
}
