//! When operators wrote what: the newest changes of a group's document, kept in the document.
//!
//! Members keep lines that they do not know, so these need nothing of them.
//!
//! | line | |
//! |---|---|
//! | `was-from MS` | since then no change is missing |
//! | `was-sum HASH` | of what operators had put in force after the newest change |
//! | `was MS + LINE`, `was MS - LINE` | a line that came, or went |

use std::collections::BTreeSet;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tenure_core::engine::Group;
use tenure_core::store::GroupDocument;
use tenure_core::{Clock as _, Document, LocalInstant, Store, StoreError, Version};
use tenure_duty::process;
use tenure_store::BootClock;
use tokio::time::timeout;

use crate::failure::nothing_happened;

/// How many lines are kept, and how many bytes: members read all of them once in a second.
const MOST: usize = 50;
const MOST_BYTES: usize = 16 << 10;
/// What the notes leave free of a document, so that it can still be changed by those who note
/// nothing: members settle their settings in it.
const FREE_BYTES: usize = 1 << 10;
/// By how much a time may be earlier than what was noted before, as those of two operators at once
/// may be.
const AT_ONCE_MS: u64 = 1_000;
/// How long a change waits for the time that is noted with it.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const FROM: &str = "was-from";
const SUM: &str = "was-sum";
const CHANGE: &str = "was";

/// The store's wall clock in milliseconds since 1970, or this machine's where it has none.
pub(crate) async fn now(store: &dyn Store) -> Result<u64, StoreError> {
    let survey = store.survey().await.map_err(nothing_happened)?;
    Ok(survey.unix_ms.unwrap_or_else(process::unix_ms))
}

/// The time, asked for once: a store has much to read for that.
pub(crate) struct Time {
    unix_ms: u64,
    asked: LocalInstant,
}

impl Time {
    /// `None` when the store does not tell: then a change is made without a note.
    pub(crate) async fn ask(store: &dyn Store) -> Option<Self> {
        let unix_ms = timeout(ANSWER_WITHIN, now(store)).await.ok()?.ok()?;
        Some(Self { unix_ms, asked: BootClock.now() })
    }

    pub(crate) fn now(&self) -> u64 {
        let since = BootClock.now().since(self.asked).as_millis();
        self.unix_ms.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
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
    sum: Option<String>,
    changes: Vec<Change>,
}

impl Past {
    fn read(group: &Group) -> Self {
        let mut past = Self::default();
        for line in &group.unknown {
            match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
                [FROM, unix_ms] => past.from = unix_ms.parse().ok(),
                [SUM, sum] => past.sum = Some(sum.to_owned()),
                [CHANGE, unix_ms, sign @ ("+" | "-"), line] => {
                    let Ok(unix_ms) = unix_ms.parse() else { continue };
                    past.changes.push(Change { unix_ms, came: sign == "+", line: line.to_owned() });
                }
                _ => {}
            }
        }
        past
    }

    /// The latest time that was noted.
    fn newest(&self) -> Option<u64> {
        self.changes.iter().map(|change| change.unix_ms).chain(self.from).max()
    }

    /// Drops the oldest, all of one moment together, and in the end all of it.
    fn shorten(&mut self, most_bytes: usize) {
        let bytes = |past: &Self| past.lines().iter().map(|line| line.len() + 1).sum::<usize>();
        while self.changes.len() > MOST || bytes(self) > most_bytes {
            let Some(oldest) = self.changes.first().map(|change| change.unix_ms) else {
                *self = Self::default();
                return;
            };
            self.changes.retain(|change| change.unix_ms > oldest);
            self.from = Some(oldest);
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        lines.extend(self.from.map(|unix_ms| format!("{FROM} {unix_ms}")));
        lines.extend(self.sum.as_ref().map(|sum| format!("{SUM} {sum}")));
        lines.extend(self.changes.iter().map(|Change { unix_ms, came, line }| {
            let sign = if *came { '+' } else { '-' };
            format!("{CHANGE} {unix_ms} {sign} {line}")
        }));
        lines
    }
}

fn is_past(line: &str) -> bool {
    matches!(line.split(' ').next(), Some(FROM | SUM | CHANGE))
}

/// The document without its past.
fn bare(group: &Group) -> Group {
    let mut group = group.clone();
    group.unknown.retain(|line| !is_past(line));
    group
}

/// The same, line by line.
fn lines(group: &Group) -> Result<Vec<String>, StoreError> {
    let document = bare(group).document()?;
    // It was written by us.
    let text = String::from_utf8_lossy(document.as_bytes());
    Ok(text.lines().map(str::to_owned).collect())
}

/// What operators have said, of those lines.
fn said(lines: &[String]) -> BTreeSet<&str> {
    let settings = ["tenure-group", "ttl_ms", "layout"];
    let word = |line: &&str| line.split(' ').next().is_some_and(|word| settings.contains(&word));
    lines.iter().map(String::as_str).filter(|line| !word(line)).collect()
}

/// What tells that from anything else that operators may say.
fn sum(said: &BTreeSet<&str>) -> String {
    let mut hash = Sha256::new();
    for line in said {
        hash.update(line);
        hash.update("\n");
    }
    hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Notes in a document what was changed in it since `before`, as far as there is room for that.
/// Without a time all notes are dropped: they would not tell of this change.
pub(crate) fn record(
    group: &mut Group,
    before: &Group,
    unix_ms: Option<u64>,
) -> Result<(), StoreError> {
    *group = bare(group);
    let Some(now) = unix_ms else { return Ok(()) };
    let (old, new) = (lines(before)?, lines(group)?);
    let (old, new) = (said(&old), said(&new));
    let mut past = Past::read(before);
    // Clocks may go back, what was written does not.
    let unix_ms = past.newest().map_or(now, |newest| newest.max(now));
    let ahead = unix_ms > now.saturating_add(AT_ONCE_MS);
    if ahead || past.sum.is_none_or(|noted| noted != sum(&old)) {
        // When something was changed is not known: from now on it is.
        past = Past::default();
    }
    past.from = past.from.or(Some(unix_ms));
    past.sum = Some(sum(&new));
    let change = |came, line: &&str| Change { unix_ms, came, line: (*line).to_owned() };
    past.changes.extend(old.difference(&new).map(|line| change(false, line)));
    past.changes.extend(new.difference(&old).map(|line| change(true, line)));
    let left = Document::MAX_BYTES - FREE_BYTES;
    past.shorten(MOST_BYTES.min(left.saturating_sub(group.document()?.as_bytes().len())));
    group.unknown.extend(past.lines());
    Ok(())
}

/// A document as it was.
pub(crate) struct Then {
    pub(crate) group: Group,
    /// Since when no change is missing; what is asked of earlier times is as it was then.
    pub(crate) from: u64,
    /// Something was changed without a note, or a clock ran ahead: it may have been otherwise.
    pub(crate) doubtful: bool,
}

/// The document as it was at a time, if changes of it were ever noted.
pub(crate) fn at(group: &Group, unix_ms: u64, now: u64) -> Result<Option<Then>, StoreError> {
    let past = Past::read(group);
    let Some(from) = past.from else { return Ok(None) };
    let mut lines = lines(group)?;
    let ahead = past.newest().is_some_and(|newest| newest > now);
    let doubtful = ahead || past.sum.is_none_or(|noted| noted != sum(&said(&lines)));
    for change in past.changes.iter().rev().filter(|change| change.unix_ms > unix_ms) {
        match change.came {
            true => lines.retain(|line| *line != change.line),
            false => lines.push(change.line.clone()),
        }
    }
    let document = Document::new(lines.join("\n") + "\n")?;
    let group = Group::read(&GroupDocument { version: Version::ZERO, document })?;
    Ok(Some(Then { group, from, doubtful }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::roster::Pin;
    use tenure_core::{DutyId, InstanceId, Label};

    /// Long after all changes.
    const NOW: u64 = 1_000_000;

    fn read(document: Document) -> Group {
        Group::read(&GroupDocument { version: Version::ZERO, document }).unwrap()
    }

    fn change(group: &mut Group, unix_ms: u64, change: impl FnOnce(&mut Group)) {
        let before = group.clone();
        change(group);
        record(group, &before, Some(unix_ms)).unwrap();
        *group = read(group.document().unwrap());
    }

    fn pause(group: &mut Group, duty: DutyId) {
        group.paused.insert(duty);
    }

    fn id(n: u64) -> DutyId {
        DutyId::new(n.to_string()).unwrap()
    }

    #[test]
    fn a_document_is_taken_back_change_by_change() {
        let (a, d) = (InstanceId::new("a b").unwrap(), DutyId::new("d").unwrap());
        let mut group =
            Group { unknown: vec!["of a newer version".to_owned()], ..Group::default() };
        assert!(at(&group, 5, NOW).unwrap().is_none());
        let zone = |zone: &str| Pin::Zone(Label::new(zone).unwrap());
        change(&mut group, 10, |group| drop(group.pins.insert(d.clone(), zone("eu"))));
        change(&mut group, 20, |group| {
            group.weights.insert(a.clone(), 3);
        });
        // Another operator at the same time, who had the time a little earlier.
        change(&mut group, 15, |group| {
            group.pins.insert(d.clone(), zone("us w"));
            group.weights.clear();
            group.all_paused = true;
        });
        let then = |unix_ms| {
            let Then { group, from, doubtful } = at(&group, unix_ms, NOW).unwrap().unwrap();
            let newer = vec!["of a newer version".to_owned()];
            assert_eq!((from, group.unknown, doubtful), (10, newer, false));
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
        for n in 1..=100 {
            change(&mut group, n / 2, |group| pause(group, id(n)));
        }
        let kept = Past::read(&group);
        assert_eq!((kept.from, kept.changes.len()), (Some(25), 50 - 1));
        let then = |unix_ms| at(&group, unix_ms, NOW).unwrap().unwrap().group.paused.len();
        assert_eq!((then(25), then(26), then(50)), (51, 53, 100));
        // More at once than are kept: only what holds from then on is known.
        change(&mut group, 60, |group| group.paused.clear());
        let Then { group, from, .. } = at(&group, 3, NOW).unwrap().unwrap();
        assert_eq!((from, group.paused.len()), (60, 0));
    }

    fn bytes(group: &Group) -> usize {
        group.document().unwrap().as_bytes().len()
    }

    #[test]
    fn notes_take_only_so_many_bytes() {
        let mut group = Group::default();
        for n in 1..=40 {
            let long = DutyId::new(format!("{n}{}", "x".repeat(190))).unwrap();
            let escaped = DutyId::new(format!("{n}{}", " ".repeat(190))).unwrap();
            change(&mut group, n, |group| group.paused.extend([long, escaped]));
        }
        let notes = bytes(&group) - bytes(&bare(&group));
        assert!((MOST_BYTES / 2..=MOST_BYTES).contains(&notes), "{notes}");
        let then = at(&group, 39, NOW).unwrap().unwrap();
        assert_eq!((then.group.paused.len(), then.doubtful, then.from > 1), (78, false, true));
    }

    /// A document without notes that is as large as one can be.
    fn full() -> Group {
        let mut group = Group { all_paused: true, ..Group::default() };
        let lines = Document::MAX_BYTES - bytes(&group);
        let (count, rest) = (lines / 200 - 1, lines % 200 + 200);
        let lengths = std::iter::repeat_n(200, count).chain([rest / 2, rest - rest / 2]);
        for (n, length) in lengths.enumerate() {
            // `pause ID` and the end of the line.
            let duty = format!("{n:0>width$}", width = length - 7);
            pause(&mut group, DutyId::new(duty).unwrap());
        }
        group
    }

    #[test]
    fn a_full_document_can_be_changed_as_without_notes() {
        let mut group = full();
        assert_eq!(bytes(&group), Document::MAX_BYTES);
        // There is no room for any note.
        change(&mut group, 10, |group| group.all_paused = false);
        assert!(at(&group, 10, NOW).unwrap().is_none());
        change(&mut group, 20, |group| group.all_paused = true);
        assert_eq!(group, full());
        // Nor more than for the newest.
        let first: Vec<DutyId> = group.paused.iter().rev().take(20).cloned().collect();
        for (n, duty) in first.iter().enumerate() {
            change(&mut group, 100 + n as u64, |group| group.paused.retain(|one| one != duty));
            let free = Document::MAX_BYTES - bytes(&group);
            assert!(free >= FREE_BYTES || bare(&group) == group, "{free}");
        }
        assert!(at(&group, 118, NOW).unwrap().unwrap().from < 119);
        for duty in &first {
            change(&mut group, 400, |group| pause(group, duty.clone()));
        }
        assert_eq!(group, full());
        // One more is too much, with notes or without.
        let before = group.clone();
        group.paused.insert(id(1));
        assert!(record(&mut group, &before, Some(500)).is_err());
    }

    #[test]
    fn a_change_without_a_note_makes_the_past_doubtful() {
        let mut group = Group::default();
        change(&mut group, 10, |group| pause(group, id(1)));
        let doubtful = |group: &Group| at(group, 10, NOW).unwrap().unwrap().doubtful;
        // Members settle their settings.
        group.settings = Some((
            tenure_core::Ttl::new(Duration::from_secs(9)).unwrap(),
            tenure_core::engine::Layout::Targets,
        ));
        assert!(!doubtful(&group));
        group.paused.insert(id(2));
        assert!(doubtful(&group));
        // From the next note on it is known again.
        change(&mut group, 30, |group| group.paused.clear());
        assert_eq!((doubtful(&group), at(&group, 10, NOW).unwrap().unwrap().from), (false, 30));
        // Nobody knew the time.
        let before = group.clone();
        group.all_paused = true;
        record(&mut group, &before, None).unwrap();
        assert!(at(&group, 30, NOW).unwrap().is_none());
    }

    #[test]
    fn a_clock_that_ran_ahead_makes_the_past_doubtful() {
        let mut group = Group::default();
        change(&mut group, 50_000, |group| pause(group, id(1)));
        let then = |group: &Group, now| {
            let then = at(group, 10_000, now).unwrap().unwrap();
            (then.from, then.doubtful)
        };
        assert_eq!(then(&group, 49_999), (50_000, true));
        assert_eq!(then(&group, 50_000), (50_000, false));
        // Also what is noted by a clock that is right, until that time has come; what was in force
        // before then is not known.
        change(&mut group, 60_000, |group| pause(group, id(2)));
        change(&mut group, 20_000, |group| group.paused.clear());
        assert_eq!(then(&group, 20_000), (60_000, true));
        assert_eq!(then(&group, 60_000), (60_000, false));
    }
}
