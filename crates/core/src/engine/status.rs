//! Status that a member publishes in its session's note: lines of `key=value`.

use std::time::Duration;

use crate::roster::RosterMember;
use crate::store::Member;
use crate::{DutyId, Label, Note, StoreError, Ttl};

/// Status of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its share relative to other members.
    pub weight: u32,
    /// The most duties that it will hold.
    pub room: usize,
    /// Whether it may be given more duties.
    pub takes: bool,
    /// Whether it may keep its duties.
    pub keeps: bool,
    /// Its work fails whatever the duty: it gives way to members whose work does not fail.
    pub failing: bool,
    /// The zone in which it runs.
    pub zone: Option<Label>,
    /// A name that survives restarts of its process.
    pub name: Option<Label>,
    /// Deployed revision.
    pub revision: Option<Label>,
    /// The only duty that it takes; `None` for any duty of the group.
    pub only: Option<DutyId>,
    /// TTL of its session; `None` in a note of an earlier version.
    pub ttl: Option<Ttl>,
    /// The longest TTL in the group, as far as it knows (R21).
    pub longest: Option<Ttl>,
    /// Number for the members and duties that it sees: equal for members that see the same (R20).
    pub view: u64,
}

impl MemberStatus {
    /// Creates the status of a member with this much room and defaults for the rest.
    pub fn with_room(room: usize) -> Self {
        Self {
            weight: 1,
            room,
            takes: true,
            keeps: true,
            failing: false,
            zone: None,
            name: None,
            revision: None,
            only: None,
            ttl: None,
            longest: None,
            view: 0,
        }
    }

    /// Returns the note with this status.
    pub fn note(&self) -> Result<Note, StoreError> {
        let mut text = format!("tenure=1\nweight={}\nroom={}\n", self.weight, self.room);
        let label = |label: &Option<Label>| label.as_ref().map(ToString::to_string);
        let millis = |ttl: Option<Ttl>| ttl.map(|ttl| ttl.as_millis().to_string());
        for (key, value) in [
            ("takes", (!self.takes).then(|| "0".to_owned())),
            ("keeps", (!self.keeps).then(|| "0".to_owned())),
            ("failing", self.failing.then(|| "1".to_owned())),
            ("zone", label(&self.zone)),
            ("name", label(&self.name)),
            ("revision", label(&self.revision)),
            ("only", self.only.as_ref().map(ToString::to_string)),
            ("ttl", millis(self.ttl)),
            ("longest", millis(self.longest.filter(|longest| Some(*longest) != self.ttl))),
            ("view", Some(format!("{:016x}", self.view))),
        ] {
            text.extend(value.map(|value| format!("{key}={value}\n")));
        }
        Note::new(text)
    }

    /// Reads a note. `None` when it was not written by an engine: such a member takes no duties.
    /// Unknown lines are ignored: they may come from a newer version.
    pub fn read(note: &Note) -> Option<Self> {
        let mut lines = note.as_str().lines().filter_map(|line| line.split_once('='));
        if lines.next() != Some(("tenure", "1")) {
            return None;
        }
        let mut status = Self::with_room(0);
        let millis = |text: &str| Ttl::new(Duration::from_millis(text.parse().ok()?)).ok();
        for (key, value) in lines {
            match key {
                "weight" => status.weight = value.parse().ok()?,
                "room" => status.room = value.parse().ok()?,
                "takes" => status.takes = value != "0",
                "keeps" => status.keeps = value != "0",
                "failing" => status.failing = value == "1",
                "zone" => status.zone = Some(Label::unescape(value).ok()?),
                "name" => status.name = Some(Label::unescape(value).ok()?),
                "revision" => status.revision = Some(Label::unescape(value).ok()?),
                "only" => status.only = Some(DutyId::unescape(value).ok()?),
                "ttl" => (status.ttl, status.longest) = (millis(value), millis(value)),
                "longest" => status.longest = millis(value),
                "view" => status.view = u64::from_str_radix(value, 16).ok()?,
                _ => {}
            }
        }
        Some(status)
    }

    /// Returns the member as the roster plans it.
    pub fn roster_member(self, member: &Member) -> RosterMember {
        RosterMember {
            instance: member.instance.clone(),
            weight: self.weight,
            room: self.room,
            takes: self.takes && !member.evicted,
            keeps: self.keeps && !member.evicted,
            zone: self.zone,
            name: self.name,
        }
    }
}

/// Separates a name from its number. Host names do not contain it, and it needs no escape.
const NUMBER_MARK: char = '_';

/// A name that another member has.
#[derive(Debug)]
pub(super) struct TakenName {
    pub(super) name: Label,
    /// The other member takes another name if this one has the same: its instance id is larger.
    pub(super) yields: bool,
}

/// Returns the name of a member: `base`, or `base` with the smallest free number, from 2.
/// `current` is the name that it has published. It keeps that, with two exceptions: a member with a
/// smaller instance id has the same, or `base` is free and this member has the smallest number.
pub(super) fn numbered_name(base: &Label, current: Option<&Label>, taken: &[TakenName]) -> Label {
    // A name that is too long for a number stays as it is.
    let numbered = |number: usize| match number {
        1 => base.clone(),
        _ => Label::new(format!("{}{NUMBER_MARK}{number}", base.as_str()))
            .unwrap_or_else(|_| base.clone()),
    };
    let is_taken = |name: &Label| taken.iter().any(|other| other.name == *name);
    let is_lost =
        |current: &Label| taken.iter().any(|other| other.name == *current && !other.yields);
    let Some(current) = current.filter(|current| !is_lost(current)) else {
        // One of these is free: they are more than the others.
        let names = (1..=taken.len() + 1).map(numbered);
        return names.into_iter().find(|name| !is_taken(name)).unwrap_or_else(|| base.clone());
    };
    let number = |name: &Label| {
        let number = name.as_str().strip_prefix(base.as_str())?.strip_prefix(NUMBER_MARK)?;
        number.parse::<usize>().ok()
    };
    let mine = number(current);
    let is_before = |other: &TakenName| number(&other.name).is_some_and(|n| Some(n) < mine);
    match is_taken(base) || taken.iter().any(is_before) {
        true => current.clone(),
        false => base.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the name that a member takes: `current` is empty while it joins, and `<` marks a name
    /// of a member with a smaller instance id.
    #[track_caller]
    fn check(current: &str, others: &[&str], expected: &str) {
        let label = |text: &str| Label::new(text).unwrap();
        let taken = others.iter().map(|text| TakenName {
            name: label(text.trim_start_matches('<')),
            yields: !text.starts_with('<'),
        });
        let current = (!current.is_empty()).then(|| label(current));
        let taken: Vec<_> = taken.collect();
        let name = numbered_name(&label("web"), current.as_ref(), &taken);
        assert_eq!(name.as_str(), expected, "{current:?} {others:?}");
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        // While it joins, it leaves their names to the others.
        check("", &[], "web");
        check("", &["db", "web-2"], "web");
        check("", &["web"], "web_2");
        check("", &["<web", "web_2"], "web_3");
        check("", &["web", "web_3"], "web_2");
        check("", &["web_2"], "web");
        // Two have joined at once: the larger instance id takes a number.
        check("web", &["web"], "web");
        check("web", &["<web"], "web_2");
        check("web", &["<web", "web_2"], "web_3");
        check("web_2", &["web", "<web_2"], "web_3");
        // It is stable while both live.
        check("web_2", &["web"], "web_2");
        check("web_2", &["<web", "web_3"], "web_2");
        check("web_3", &["web", "<db"], "web_3");
        // When the name is free again, the smallest number gets it.
        check("web_2", &["web_3"], "web");
        check("web_3", &["web_2"], "web_3");
        check("web_3", &["db"], "web");
        check("web_3", &[], "web");
    }

    #[test]
    fn a_name_without_room_for_a_number_stays() {
        let long = Label::new("x".repeat(Label::MAX_NAME_BYTES)).unwrap();
        let taken = [TakenName { name: long.clone(), yields: false }];
        assert_eq!(numbered_name(&long, Some(&long), &taken), long);
    }

    #[test]
    fn a_status_is_read_back_and_other_notes_are_not() {
        let label = |text: &str| Some(Label::new(text).unwrap());
        let status = MemberStatus {
            weight: 3,
            room: 7,
            takes: false,
            keeps: false,
            failing: true,
            zone: label("eu west=1\u{2028}"),
            name: label("api-0"),
            revision: label("v2"),
            only: Some(DutyId::new("a/b").unwrap()),
            ttl: Some(Ttl::new(Duration::from_secs(4)).unwrap()),
            longest: Some(Ttl::new(Duration::from_secs(8)).unwrap()),
            view: 0xfeed,
        };
        let short = MemberStatus { longest: status.ttl, ..status.clone() };
        assert_eq!(MemberStatus::read(&short.note().unwrap()), Some(short));
        assert_eq!(MemberStatus::read(&status.note().unwrap()), Some(status));
        for other in ["", "weight=1", "tenure=2\nweight=1", "tenure=1\nweight=x"] {
            assert_eq!(MemberStatus::read(&Note::new(other).unwrap()), None, "{other:?}");
        }
        let newer = Note::new("tenure=1\nweight=2\nroom=5\nshoe=9\nview=0f").unwrap();
        assert_eq!(
            MemberStatus::read(&newer).map(|s| (s.weight, s.room, s.view)),
            Some((2, 5, 15))
        );
    }
}
