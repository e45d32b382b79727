//! Change history of a group's document: the newest changes, kept as lines of the document itself.
//!
//! Members keep lines that they do not know, so no member needs to understand these.
//!
//! | line | meaning |
//! |---|---|
//! | `was-from MS` | the history is complete from this time on |
//! | `was-sum HASH` | digest of the operators' lines after the newest change |
//! | `was MS + LINE`, `was MS - LINE` | a line that was added or removed |

use std::collections::BTreeSet;

use super::GroupConfig;
use crate::store::GroupDocument;
use crate::{Document, StoreError, Version};

/// SHA-256, supplied by the caller because this crate has no implementation.
pub type Sha256Fn = fn(&[u8]) -> [u8; 32];

/// Limits of the history: members read all of it once a second.
const MAX_CHANGES: usize = 50;
const MAX_HISTORY_BYTES: usize = 16 << 10;
/// Space that the history leaves free in a document, so that members can still write their settings
/// into it.
const RESERVED_BYTES: usize = 1 << 10;
/// Tolerated clock difference between two operators who write at the same time.
const MAX_CLOCK_SKEW_MS: u64 = 1_000;
const FROM: &str = "was-from";
const SUM: &str = "was-sum";
const CHANGE: &str = "was";

/// A group's configuration at an earlier time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastConfig {
    /// The configuration.
    pub config: GroupConfig,
    /// The history is complete from this time on, in milliseconds since 1970. For an earlier time
    /// `config` is the configuration of this one.
    pub from: u64,
    /// A change was made without a history entry, or a clock ran ahead: `config` may be wrong.
    pub doubtful: bool,
}

struct LineChange {
    unix_ms: u64,
    added: bool,
    line: String,
}

#[derive(Default)]
struct ConfigHistory {
    from: Option<u64>,
    sum: Option<String>,
    changes: Vec<LineChange>,
}

impl ConfigHistory {
    fn read(config: &GroupConfig) -> Self {
        let mut history = Self::default();
        for line in &config.unknown {
            match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
                [FROM, unix_ms] => history.from = unix_ms.parse().ok(),
                [SUM, sum] => history.sum = Some(sum.to_owned()),
                [CHANGE, unix_ms, sign @ ("+" | "-"), line] => {
                    let Ok(unix_ms) = unix_ms.parse() else { continue };
                    let (added, line) = (sign == "+", line.to_owned());
                    history.changes.push(LineChange { unix_ms, added, line });
                }
                _ => {}
            }
        }
        history
    }

    fn newest(&self) -> Option<u64> {
        self.changes.iter().map(|change| change.unix_ms).chain(self.from).max()
    }

    /// Drops the oldest changes, all of one time together, until the rest fits.
    fn shorten(&mut self, max_bytes: usize) {
        let bytes = |history: &Self| history.lines().iter().map(|l| l.len() + 1).sum::<usize>();
        while self.changes.len() > MAX_CHANGES || bytes(self) > max_bytes {
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
        lines.extend(self.changes.iter().map(|LineChange { unix_ms, added, line }| {
            let sign = if *added { '+' } else { '-' };
            format!("{CHANGE} {unix_ms} {sign} {line}")
        }));
        lines
    }
}

impl GroupConfig {
    /// Records in the document what changed in it since `before`, as far as there is space.
    /// Without a time it drops the history, which would miss this change.
    pub fn record_changes(
        &mut self,
        before: &Self,
        unix_ms: Option<u64>,
        sha256: Sha256Fn,
    ) -> Result<(), StoreError> {
        self.drop_history();
        let Some(now) = unix_ms else { return Ok(()) };
        let (old, new) = (before.lines(), self.lines());
        let (old, new) = (operator_lines(&old), operator_lines(&new));
        let mut history = ConfigHistory::read(before);
        // The history stays in order even if the clock goes back.
        let unix_ms = history.newest().map_or(now, |newest| newest.max(now));
        let ahead = unix_ms > now.saturating_add(MAX_CLOCK_SKEW_MS);
        if ahead || history.sum.is_none_or(|recorded| recorded != sum(&old, sha256)) {
            // The time of an earlier change is not known, so the history starts here.
            history = ConfigHistory::default();
        }
        history.from = history.from.or(Some(unix_ms));
        history.sum = Some(sum(&new, sha256));
        let change = |added, line: &&str| LineChange { unix_ms, added, line: (*line).to_owned() };
        history.changes.extend(old.difference(&new).map(|line| change(false, line)));
        history.changes.extend(new.difference(&old).map(|line| change(true, line)));
        let left = Document::MAX_DOCUMENT_BYTES - RESERVED_BYTES;
        let left = left.saturating_sub(self.document()?.as_bytes().len());
        history.shorten(MAX_HISTORY_BYTES.min(left));
        self.unknown.extend(history.lines());
        Ok(())
    }

    /// Returns the configuration at a time, or `None` when the document has no history.
    pub fn at(
        &self,
        unix_ms: u64,
        now: u64,
        sha256: Sha256Fn,
    ) -> Result<Option<PastConfig>, StoreError> {
        let history = ConfigHistory::read(self);
        let Some(from) = history.from else { return Ok(None) };
        let mut lines = self.lines();
        let ahead = history.newest().is_some_and(|newest| newest > now);
        let current = sum(&operator_lines(&lines), sha256);
        let doubtful = ahead || history.sum.is_none_or(|recorded| recorded != current);
        for change in history.changes.iter().rev().filter(|change| change.unix_ms > unix_ms) {
            match change.added {
                true => lines.retain(|line| *line != change.line),
                false => lines.push(change.line.clone()),
            }
        }
        let document = Document::new(lines.join("\n") + "\n")?;
        let config = Self::read(&GroupDocument { version: Version::ZERO, document })?;
        Ok(Some(PastConfig { config, from, doubtful }))
    }

    fn drop_history(&mut self) {
        let is_history = |line: &str| matches!(line.split(' ').next(), Some(FROM | SUM | CHANGE));
        self.unknown.retain(|line| !is_history(line));
    }

    /// Returns the lines of the document without its history.
    fn lines(&self) -> Vec<String> {
        let mut config = self.clone();
        config.drop_history();
        config.text().lines().map(str::to_owned).collect()
    }
}

/// Filters the lines that operators write.
fn operator_lines(lines: &[String]) -> BTreeSet<&str> {
    let settings = ["tenure-group", "ttl_ms", "layout"];
    let is_setting =
        |line: &&str| line.split(' ').next().is_some_and(|word| settings.contains(&word));
    lines.iter().map(String::as_str).filter(|line| !is_setting(line)).collect()
}

/// Returns the first eight bytes of the digest of these lines, in hexadecimal.
fn sum(lines: &BTreeSet<&str>, sha256: Sha256Fn) -> String {
    let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    sha256(text.as_bytes())[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roster::Pin;
    use crate::{DutyId, InstanceId, Label, Ttl};
    use std::time::Duration;

    use super::super::Layout;

    /// Substitute for SHA-256.
    fn digest(bytes: &[u8]) -> [u8; 32] {
        let hash = crate::fnv::Fnv::new().bytes(bytes).0.to_le_bytes();
        std::array::from_fn(|n| hash[n % 8])
    }

    fn bare(group: &GroupConfig) -> GroupConfig {
        let mut group = group.clone();
        group.drop_history();
        group
    }

    /// A time long after all changes.
    const NOW: u64 = 1_000_000;

    fn read(document: Document) -> GroupConfig {
        GroupConfig::read(&GroupDocument { version: Version::ZERO, document }).unwrap()
    }

    fn change(group: &mut GroupConfig, unix_ms: u64, change: impl FnOnce(&mut GroupConfig)) {
        let before = group.clone();
        change(group);
        group.record_changes(&before, Some(unix_ms), digest).unwrap();
        *group = read(group.document().unwrap());
    }

    fn pause(group: &mut GroupConfig, duty: DutyId) {
        group.paused.insert(duty);
    }

    fn id(n: u64) -> DutyId {
        DutyId::new(n.to_string()).unwrap()
    }

    #[test]
    fn a_document_is_taken_back_change_by_change() {
        let (a, d) = (InstanceId::new("a b").unwrap(), DutyId::new("d").unwrap());
        let mut group = GroupConfig {
            unknown: vec!["of a newer version".to_owned()],
            ..GroupConfig::default()
        };
        assert!(group.at(5, NOW, digest).unwrap().is_none());
        let zone = |zone: &str| Pin::Zone(Label::new(zone).unwrap());
        change(&mut group, 10, |group| drop(group.pins.insert(d.clone(), zone("eu"))));
        change(&mut group, 20, |group| {
            group.weights.insert(a.clone(), 3);
        });
        // Another operator at the same time, whose clock is slightly behind.
        change(&mut group, 15, |group| {
            group.pins.insert(d.clone(), zone("us w"));
            group.weights.clear();
            group.all_paused = true;
        });
        let then = |unix_ms| {
            let PastConfig { config: group, from, doubtful } =
                group.at(unix_ms, NOW, digest).unwrap().unwrap();
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
        let mut group = GroupConfig::default();
        for n in 1..=100 {
            change(&mut group, n / 2, |group| pause(group, id(n)));
        }
        let kept = ConfigHistory::read(&group);
        assert_eq!((kept.from, kept.changes.len()), (Some(25), 50 - 1));
        let then = |unix_ms| group.at(unix_ms, NOW, digest).unwrap().unwrap().config.paused.len();
        assert_eq!((then(25), then(26), then(50)), (51, 53, 100));
        // More changes at once than are kept: only the state after them is known.
        change(&mut group, 60, |group| group.paused.clear());
        let PastConfig { config: group, from, .. } = group.at(3, NOW, digest).unwrap().unwrap();
        assert_eq!((from, group.paused.len()), (60, 0));
    }

    fn bytes(group: &GroupConfig) -> usize {
        group.document().unwrap().as_bytes().len()
    }

    #[test]
    fn notes_take_only_so_many_bytes() {
        let mut group = GroupConfig::default();
        for n in 1..=40 {
            let long = DutyId::new(format!("{n}{}", "x".repeat(190))).unwrap();
            let escaped = DutyId::new(format!("{n}{}", " ".repeat(190))).unwrap();
            change(&mut group, n, |group| group.paused.extend([long, escaped]));
        }
        let notes = bytes(&group) - bytes(&bare(&group));
        assert!((MAX_HISTORY_BYTES / 2..=MAX_HISTORY_BYTES).contains(&notes), "{notes}");
        let then = group.at(39, NOW, digest).unwrap().unwrap();
        assert_eq!((then.config.paused.len(), then.doubtful, then.from > 1), (78, false, true));
    }

    /// A document of the largest size, without history.
    fn full() -> GroupConfig {
        let mut group = GroupConfig { all_paused: true, ..GroupConfig::default() };
        let lines = Document::MAX_DOCUMENT_BYTES - bytes(&group);
        let (count, rest) = (lines / 200 - 1, lines % 200 + 200);
        let lengths = std::iter::repeat_n(200, count).chain([rest / 2, rest - rest / 2]);
        for (n, length) in lengths.enumerate() {
            // `pause ID` and the newline.
            let duty = format!("{n:0>width$}", width = length - 7);
            pause(&mut group, DutyId::new(duty).unwrap());
        }
        group
    }

    #[test]
    fn a_full_document_can_be_changed_as_without_notes() {
        let mut group = full();
        assert_eq!(bytes(&group), Document::MAX_DOCUMENT_BYTES);
        // There is no room for any history.
        change(&mut group, 10, |group| group.all_paused = false);
        assert!(group.at(10, NOW, digest).unwrap().is_none());
        change(&mut group, 20, |group| group.all_paused = true);
        assert_eq!(group, full());
        // Later there is room for the newest changes only.
        let first: Vec<DutyId> = group.paused.iter().rev().take(20).cloned().collect();
        for (n, duty) in first.iter().enumerate() {
            change(&mut group, 100 + n as u64, |group| group.paused.retain(|one| one != duty));
            let free = Document::MAX_DOCUMENT_BYTES - bytes(&group);
            assert!(free >= RESERVED_BYTES || bare(&group) == group, "{free}");
        }
        assert!(group.at(118, NOW, digest).unwrap().unwrap().from < 119);
        for duty in &first {
            change(&mut group, 400, |group| pause(group, duty.clone()));
        }
        assert_eq!(group, full());
        // One more line is too much, with or without history.
        let before = group.clone();
        group.paused.insert(id(1));
        assert!(group.record_changes(&before, Some(500), digest).is_err());
    }

    #[test]
    fn a_change_without_a_note_makes_the_past_doubtful() {
        let mut group = GroupConfig::default();
        change(&mut group, 10, |group| pause(group, id(1)));
        let doubtful = |group: &GroupConfig| group.at(10, NOW, digest).unwrap().unwrap().doubtful;
        // Members write their settings.
        group.settings = Some((Ttl::new(Duration::from_secs(9)).unwrap(), Layout::Targets));
        assert!(!doubtful(&group));
        group.paused.insert(id(2));
        assert!(doubtful(&group));
        // From the next recorded change on, the state is known again.
        change(&mut group, 30, |group| group.paused.clear());
        assert_eq!(
            (doubtful(&group), group.at(10, NOW, digest).unwrap().unwrap().from),
            (false, 30)
        );
        // The time was unknown.
        let before = group.clone();
        group.all_paused = true;
        group.record_changes(&before, None, digest).unwrap();
        assert!(group.at(30, NOW, digest).unwrap().is_none());
    }

    #[test]
    fn a_clock_that_ran_ahead_makes_the_past_doubtful() {
        let mut group = GroupConfig::default();
        change(&mut group, 50_000, |group| pause(group, id(1)));
        let then = |group: &GroupConfig, now| {
            let then = group.at(10_000, now, digest).unwrap().unwrap();
            (then.from, then.doubtful)
        };
        assert_eq!(then(&group, 49_999), (50_000, true));
        assert_eq!(then(&group, 50_000), (50_000, false));
        // It stays doubtful after a change by a correct clock, until that time has come; the state
        // before it is unknown.
        change(&mut group, 60_000, |group| pause(group, id(2)));
        change(&mut group, 20_000, |group| group.paused.clear());
        assert_eq!(then(&group, 20_000), (60_000, true));
        assert_eq!(then(&group, 60_000), (60_000, false));
    }
}
