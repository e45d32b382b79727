//! When operators wrote what: the newest changes of a group's document, kept in the document.
//!
//! Members keep lines that they do not know, so these need nothing of them.
//!
//! | line | |
//! |---|---|
//! | `was-from MS` | since then no change is missing |
//! | `was MS + LINE`, `was MS - LINE` | a line that came, or went |

use std::collections::BTreeSet;

use tenure_core::engine::Group;
use tenure_core::store::GroupDocument;
use tenure_core::{Document, Store, StoreError, Version};
use tenure_duty::process;

/// How many lines are kept: members read all of them once in a second.
const MOST: usize = 50;
const FROM: &str = "was-from";
const CHANGE: &str = "was";

/// The store's wall clock in milliseconds since 1970, or this machine's where it has none.
pub(crate) async fn now(store: &dyn Store) -> u64 {
    let survey = store.survey().await.ok();
    survey.and_then(|survey| survey.unix_ms).unwrap_or_else(process::unix_ms)
}

/// A line that came or went.
struct Change {
    unix_ms: u64,
    came: bool,
    line: String,
}

#[derive(Default)]
struct Past {
    from: Option<u64>,
    changes: Vec<Change>,
}

impl Past {
    fn read(group: &Group) -> Self {
        let mut past = Self::default();
        for line in &group.unknown {
            match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
                [FROM, unix_ms] => past.from = unix_ms.parse().ok(),
                [CHANGE, unix_ms, sign @ ("+" | "-"), line] => {
                    let Ok(unix_ms) = unix_ms.parse() else { continue };
                    past.changes.push(Change { unix_ms, came: sign == "+", line: line.to_owned() });
                }
                _ => {}
            }
        }
        past
    }

    /// Drops the oldest, all of one moment together.
    fn shorten(&mut self) {
        while self.changes.len() > MOST {
            let oldest = self.changes[0].unix_ms;
            self.changes.retain(|change| change.unix_ms > oldest);
            self.from = Some(oldest);
        }
    }

    fn write(&self, group: &mut Group) {
        group.unknown.retain(|line| !is_past(line));
        group.unknown.extend(self.from.map(|unix_ms| format!("{FROM} {unix_ms}")));
        group.unknown.extend(self.changes.iter().map(|Change { unix_ms, came, line }| {
            let sign = if *came { '+' } else { '-' };
            format!("{CHANGE} {unix_ms} {sign} {line}")
        }));
    }
}

fn is_past(line: &str) -> bool {
    matches!(line.split(' ').next(), Some(FROM | CHANGE))
}

/// The document without its past, line by line.
fn lines(group: &Group) -> Result<Vec<String>, StoreError> {
    let document = group.document()?;
    // It was written by us.
    let text = String::from_utf8_lossy(document.as_bytes());
    Ok(text.lines().filter(|line| !is_past(line)).map(str::to_owned).collect())
}

/// What operators have said, of those lines.
fn said(lines: &[String]) -> BTreeSet<&str> {
    let settings = ["tenure-group", "ttl_ms", "layout"];
    let word = |line: &&str| line.split(' ').next().is_some_and(|word| settings.contains(&word));
    lines.iter().map(String::as_str).filter(|line| !word(line)).collect()
}

/// Notes in a document what was changed in it since `before`.
pub(crate) fn record(group: &mut Group, before: &Group, unix_ms: u64) -> Result<(), StoreError> {
    let (old, new) = (lines(before)?, lines(group)?);
    let (old, new) = (said(&old), said(&new));
    let mut past = Past::read(before);
    // Clocks may go back, what was written does not.
    let unix_ms = past.changes.last().map_or(unix_ms, |last| last.unix_ms.max(unix_ms));
    past.from = past.from.or(Some(unix_ms));
    let change = |came, line: &&str| Change { unix_ms, came, line: (*line).to_owned() };
    past.changes.extend(old.difference(&new).map(|line| change(false, line)));
    past.changes.extend(new.difference(&old).map(|line| change(true, line)));
    past.shorten();
    past.write(group);
    Ok(())
}

/// A document as it was.
pub(crate) struct Then {
    pub(crate) group: Group,
    /// Since when no change is missing; what is asked of earlier times is as it was then.
    pub(crate) from: u64,
}

/// The document as it was at a time, if changes of it were ever noted.
pub(crate) fn at(group: &Group, unix_ms: u64) -> Result<Option<Then>, StoreError> {
    let past = Past::read(group);
    let Some(from) = past.from else { return Ok(None) };
    let mut lines = lines(group)?;
    for change in past.changes.iter().rev().filter(|change| change.unix_ms > unix_ms) {
        match change.came {
            true => lines.retain(|line| *line != change.line),
            false => lines.push(change.line.clone()),
        }
    }
    let document = Document::new(lines.join("\n") + "\n")?;
    let group = Group::read(&GroupDocument { version: Version::ZERO, document })?;
    Ok(Some(Then { group, from }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::roster::Pin;
    use tenure_core::{DutyId, InstanceId, Label};

    fn change(group: &mut Group, unix_ms: u64, change: impl FnOnce(&mut Group)) {
        let before = group.clone();
        change(group);
        record(group, &before, unix_ms).unwrap();
        let document = group.document().unwrap();
        *group = Group::read(&GroupDocument { version: Version::ZERO, document }).unwrap();
    }

    #[test]
    fn a_document_is_taken_back_change_by_change() {
        let (a, d) = (InstanceId::new("a b").unwrap(), DutyId::new("d").unwrap());
        let mut group =
            Group { unknown: vec!["of a newer version".to_owned()], ..Group::default() };
        assert!(at(&group, 5).unwrap().is_none());
        let zone = |zone: &str| Pin::Zone(Label::new(zone).unwrap());
        change(&mut group, 10, |group| drop(group.pins.insert(d.clone(), zone("eu"))));
        change(&mut group, 20, |group| {
            group.weights.insert(a.clone(), 3);
        });
        // The clock went back.
        change(&mut group, 15, |group| {
            group.pins.insert(d.clone(), zone("us w"));
            group.weights.clear();
            group.all_paused = true;
        });
        let then = |unix_ms| {
            let Then { group, from } = at(&group, unix_ms).unwrap().unwrap();
            assert_eq!((from, group.unknown), (10, vec!["of a newer version".to_owned()]));
            (group.pins.get(&d).cloned(), group.weights.get(&a).copied(), group.all_paused)
        };
        assert_eq!(then(9), (None, None, false));
        assert_eq!(then(10), (Some(zone("eu")), None, false));
        assert_eq!(then(19), (Some(zone("eu")), None, false));
        assert_eq!(then(20), (Some(zone("us w")), None, true));
    }

    #[test]
    fn the_oldest_changes_are_dropped_by_the_moment() {
        let mut group = Group::default();
        let id = |n: u64| DutyId::new(n.to_string()).unwrap();
        for n in 1..=100 {
            change(&mut group, n / 2, |group| {
                group.paused.insert(id(n));
            });
        }
        let kept = Past::read(&group);
        assert_eq!((kept.from, kept.changes.len()), (Some(25), 50 - 1));
        let then = |unix_ms| at(&group, unix_ms).unwrap().unwrap().group.paused.len();
        assert_eq!((then(25), then(26), then(50)), (51, 53, 100));
        // More at once than are kept: only what holds from then on is known.
        change(&mut group, 60, |group| group.paused.clear());
        let Then { group, from } = at(&group, 3).unwrap().unwrap();
        assert_eq!((from, group.paused.len()), (60, 0));
    }
}
