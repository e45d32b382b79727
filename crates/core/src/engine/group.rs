//! Group configuration: the document that all members of a group share.

use std::collections::{BTreeMap, BTreeSet};

use super::settings::Layout;
use crate::roster::{Pin, RosterMember};
use crate::store::GroupDocument;
use crate::{Code, Document, DutyId, InstanceId, Label, StoreError, Ttl};

const FIRST_LINE: &str = "tenure-group 1";

/// Parsed document of a group: settings and operators' orders that all members follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupConfig {
    /// The longest TTL of the members, and the layout; `None` until the first one has joined.
    pub settings: Option<(Ttl, Layout)>,
    /// Duties that operators pinned.
    pub pins: BTreeMap<DutyId, Pin>,
    /// Duties that operators paused.
    pub paused: BTreeSet<DutyId>,
    /// Whether all duties are paused.
    pub all_paused: bool,
    /// Members that get no more duties.
    pub cordoned: BTreeSet<InstanceId>,
    /// Members that get no more duties and hand over theirs.
    pub drained: BTreeMap<InstanceId, DrainMode>,
    /// Weights that operators set, overriding the members' own.
    pub weights: BTreeMap<InstanceId, u32>,
    /// Lines that this version does not know; they are preserved.
    pub unknown: Vec<String>,
}

crate::text_enum! {
    /// Condition under which a drained member gives its duties away.
    pub enum DrainMode {
        HandOver "hand-over" "As long as another member takes over."
        Anyway "anyway" "Even if no member takes over: its duties stay free."
    }
}

impl GroupConfig {
    /// Whether this duty is paused.
    pub fn pauses(&self, duty: &DutyId) -> bool {
        self.all_paused || self.paused.contains(duty)
    }

    /// Applies the operators' orders to a member.
    pub fn adjust(&self, member: &mut RosterMember) {
        let drained = self.drained.contains_key(&member.instance);
        member.takes &= !drained && !self.cordoned.contains(&member.instance);
        member.keeps &= !drained;
        if let Some(weight) = self.weights.get(&member.instance) {
            member.weight = *weight;
        }
    }

    /// Reads the document of a group.
    pub fn read(document: &GroupDocument) -> Result<Self, StoreError> {
        let bytes = document.document.as_bytes();
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8"))?;
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(damaged(&format!("the first line is not {FIRST_LINE:?}")));
        }
        let mut group = Self::default();
        let (mut ttl, mut layout) = (None, None);
        for line in lines {
            let wrong = || damaged(&format!("the line {line:?} is invalid"));
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["ttl_ms", millis] => {
                    let millis = millis.parse().map_err(|_| wrong())?;
                    ttl = Some(Ttl::new(std::time::Duration::from_millis(millis))?);
                }
                ["layout", word] => layout = Some(layout_of(word).ok_or_else(wrong)?),
                ["pin", duty, place] => {
                    let pin = pin_of(place).ok_or_else(wrong)?;
                    group.pins.insert(DutyId::unescape(duty)?, pin);
                }
                ["pause", duty] => {
                    group.paused.insert(DutyId::unescape(duty)?);
                }
                ["pause-all"] => group.all_paused = true,
                ["cordon", instance] => {
                    group.cordoned.insert(InstanceId::unescape(instance)?);
                }
                ["drain", instance, how] => {
                    let how = DrainMode::parse(how).ok_or_else(wrong)?;
                    group.drained.insert(InstanceId::unescape(instance)?, how);
                }
                ["weight", instance, weight] => {
                    let weight = weight.parse().map_err(|_| wrong())?;
                    group.weights.insert(InstanceId::unescape(instance)?, weight);
                }
                // Possibly from a newer version.
                _ => group.unknown.push(line.to_owned()),
            }
        }
        group.settings = ttl.zip(layout);
        Ok(group)
    }

    /// Serialises the configuration.
    pub fn document(&self) -> Result<Document, StoreError> {
        Document::new(self.text())
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![FIRST_LINE.to_owned()];
        if let Some((ttl, layout)) = &self.settings {
            lines.extend([format!("ttl_ms {}", ttl.as_millis()), format!("layout {layout}")]);
        }
        lines.extend(self.pins.iter().map(|(duty, pin)| format!("pin {duty} {pin}")));
        lines.extend(self.paused.iter().map(|duty| format!("pause {duty}")));
        lines.extend(self.all_paused.then(|| "pause-all".to_owned()));
        lines.extend(self.cordoned.iter().map(|instance| format!("cordon {instance}")));
        lines.extend(self.drained.iter().map(|(instance, how)| format!("drain {instance} {how}")));
        let weight =
            |(instance, weight): (&InstanceId, &u32)| format!("weight {instance} {weight}");
        lines.extend(self.weights.iter().map(weight));
        lines.extend(self.unknown.iter().cloned());
        lines.join("\n") + "\n"
    }

    /// Whether a member with this layout may join: `Ok(true)` when the document has it, `Ok(false)`
    /// when it must be replaced first. `alone`: there is no other member. `unused`: no duty of the
    /// group was ever granted, or all were forgotten.
    pub fn admits(&self, layout: Layout, alone: bool, unused: bool) -> Result<bool, StoreError> {
        let Some((_, theirs)) = self.settings else { return Ok(false) };
        if theirs != layout && !(alone && unused) {
            let what = format!("the group's layout is {theirs}, this instance's is {layout}");
            return Err(StoreError::refused(Code::SettingsDiffer, what));
        }
        Ok(theirs == layout)
    }
}

fn damaged(what: &str) -> StoreError {
    StoreError::refused(Code::Damaged, format!("the document of the group: {what}"))
}

fn layout_of(word: &str) -> Option<Layout> {
    match word.split_once(':') {
        None if word == "standby" => Some(Layout::Standby),
        None if word == "targets" => Some(Layout::Targets),
        Some(("shards", count)) => count.parse().ok().map(Layout::Shards),
        _ => None,
    }
}

fn pin_of(place: &str) -> Option<Pin> {
    let (kind, name) = place.split_once(':')?;
    match kind {
        "instance" => InstanceId::unescape(name).ok().map(Pin::Instance),
        "name" => Label::unescape(name).ok().map(Pin::Name),
        "zone" => Label::unescape(name).ok().map(Pin::Zone),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;
    use std::time::Duration;

    fn ttl(seconds: u64) -> Ttl {
        Ttl::new(Duration::from_secs(seconds)).unwrap()
    }

    fn stored(document: Document) -> GroupDocument {
        GroupDocument { version: Version::new(1).unwrap(), document }
    }

    #[test]
    fn a_group_is_read_back() {
        let id = |text: &str| DutyId::new(text).unwrap();
        let instance = InstanceId::new("host-1-a b").unwrap();
        let group = GroupConfig {
            settings: Some((ttl(30), Layout::Shards(16))),
            pins: [
                (id("a"), Pin::Zone(Label::new("eu west").unwrap())),
                (id("b:c"), Pin::Instance(instance.clone())),
                (id("c d"), Pin::Name(Label::new("n:1").unwrap())),
            ]
            .into(),
            paused: [id("x y")].into(),
            all_paused: true,
            cordoned: [instance.clone()].into(),
            drained: [
                (instance.clone(), DrainMode::HandOver),
                (InstanceId::new("z").unwrap(), DrainMode::Anyway),
            ]
            .into(),
            weights: [(instance, 3)].into(),
            unknown: vec!["of a newer version".to_owned()],
        };
        assert_eq!(GroupConfig::read(&stored(group.document().unwrap())), Ok(group));
        assert_eq!(GroupConfig::read(&GroupDocument::default()), Ok(GroupConfig::default()));
        for bad in
            ["x", "tenure-group 2\n", "tenure-group 1\nttl_ms x\n", "tenure-group 1\npin a b\n"]
        {
            let error = GroupConfig::read(&stored(Document::new(bad).unwrap())).unwrap_err();
            assert_eq!(error.code(), Code::Damaged, "{bad:?}");
        }
    }

    #[test]
    fn another_layout_is_refused_with_both_values() {
        let group =
            GroupConfig { settings: Some((ttl(30), Layout::Shards(4))), ..GroupConfig::default() };
        let admits = |layout, alone, unused| {
            group.admits(layout, alone, unused).map_err(|e| e.problem().to_string())
        };
        assert_eq!(admits(Layout::Shards(4), false, false), Ok(true));
        assert_eq!(admits(Layout::Shards(8), true, true), Ok(false));
        for (alone, unused) in [(true, false), (false, true)] {
            let text = admits(Layout::Shards(8), alone, unused).unwrap_err();
            assert!(text.contains("shards:4, this instance's is shards:8"), "{text}");
        }
        assert_eq!(GroupConfig::default().admits(Layout::Targets, false, false), Ok(false));
    }
}
