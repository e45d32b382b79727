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

#[cfg(test)]
mod tests {
    use super::*;

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
