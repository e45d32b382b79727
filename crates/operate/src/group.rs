//! Snapshot of a group in the store, and the plans that its members compute from it.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::engine::{GroupConfig, GroupSnapshot, Layout, MemberStatus};
use tenure_core::roster::{Pin, RosterMember};
use tenure_core::store::{CurrentHolder, GroupDocument, Holder, Member};
use tenure_core::text::counted;
use tenure_core::{
    Code, DutyId, DutyKey, GroupName, InstanceId, Listing, Store, StoreError, Target, Version,
};

use crate::error::{OperateError, nothing_happened};

/// Note for groups whose duties come from a list of targets.
pub(crate) const TARGETS_NOTE: &str = "the duties of this group come from a list outside the \
    store: only granted duties are known, free ones may no longer be listed, and their zones are \
    not known";

/// A group at one moment: its document, members and holders.
#[derive(Clone, Debug)]
pub struct StoredGroup {
    /// Name of the group.
    pub name: GroupName,
    /// Version of the group's document.
    pub version: Version,
    /// Document of the group: its settings and directives.
    pub document: GroupConfig,
    /// Live members.
    pub members: Vec<Member>,
    /// Every duty that was granted, with its holder.
    pub holders: Vec<Holder>,
}

impl StoredGroup {
    /// Reads a group. An unknown group is refused with [`Code::NotThere`].
    pub async fn read(store: &dyn Store, name: &GroupName) -> Result<Self, StoreError> {
        Self::read_with(store, name, GroupConfig::read).await
    }

    /// Reads a group whose document may be unreadable; it then counts as empty.
    pub(crate) async fn read_lenient(
        store: &dyn Store,
        name: &GroupName,
    ) -> Result<Self, StoreError> {
        Self::read_with(store, name, |text| Ok(GroupConfig::read(text).unwrap_or_default())).await
    }

    async fn read_with(
        store: &dyn Store,
        name: &GroupName,
        parse: fn(&GroupDocument) -> Result<GroupConfig, StoreError>,
    ) -> Result<Self, StoreError> {
        let read = async {
            // The document first: an instance in it that is not a member has ended or expired.
            let document = store.group_document(name).await?;
            let members = store.members(name).await?;
            let holders = store.holders(name).await?;
            let empty = members.is_empty() && holders.is_empty();
            if document.version == Version::ZERO && empty && !store.groups().await?.contains(name) {
                return Err(StoreError::refused(Code::NotThere, format!("the group {name}")));
            }
            Ok((document, members, holders))
        };
        let (text, members, holders) = read.await.map_err(nothing_happened)?;
        let document = parse(&text)?;
        Ok(Self { name: name.clone(), version: text.version, document, members, holders })
    }

    /// Layout of the group; `None` until the first member settled it.
    pub fn layout(&self) -> Option<Layout> {
        self.document.settings.map(|(_, layout)| layout)
    }

    /// Whether the duties come from a list of targets outside the store.
    pub fn has_targets(&self) -> bool {
        matches!(self.layout(), Some(Layout::Targets) | None)
    }

    /// Every known duty, by id.
    pub fn known_duties(&self) -> BTreeSet<DutyId> {
        let granted = self.holders.iter().map(|holder| holder.duty.id.clone());
        match self.layout() {
            Some(Layout::Shards(count)) => {
                (0..count).filter_map(|n| Layout::shard(n).ok()).collect()
            }
            Some(Layout::Standby) => {
                granted.chain(self.members.iter().filter_map(only_duty)).collect()
            }
            Some(Layout::Targets) | None => granted.collect(),
        }
    }

    /// Whether a duty is known, or named by an operator.
    pub fn knows(&self, duty: &DutyId) -> bool {
        let granted = self.holders.iter().any(|holder| holder.duty.id == *duty);
        let named = self.document.pins.contains_key(duty) || self.document.paused.contains(duty);
        let standby = self.members.iter().any(|member| only_duty(member).as_ref() == Some(duty));
        granted || named || standby || self.known_duties().contains(duty)
    }

    /// Refuses an unknown duty: a typo must not look like success.
    pub(crate) fn check_duty(&self, duty: &DutyId) -> Result<(), OperateError> {
        if self.knows(duty) {
            return Ok(());
        }
        Err(OperateError::not_there(format!("the duty {}/{duty} was never granted", self.name)))
    }

    /// Current holders by duty.
    pub fn held(&self) -> BTreeMap<DutyId, InstanceId> {
        let held = self.holders.iter().filter_map(|holder| {
            Some((holder.duty.id.clone(), holder.holder.as_ref()?.instance.clone()))
        });
        held.collect()
    }

    /// Duties that an instance holds.
    pub fn held_by(&self, instance: &InstanceId) -> Vec<(&DutyKey, &CurrentHolder)> {
        let held = self.holders.iter().filter_map(|it| Some((&it.duty, it.holder.as_ref()?)));
        held.filter(|(_, holder)| holder.instance == *instance).collect()
    }

    /// A duty that was granted, with its holder.
    pub fn holder(&self, duty: &DutyId) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.duty.id == *duty)
    }

    /// Instance that holds a duty now.
    pub fn holding_instance(&self, duty: &DutyId) -> Option<&InstanceId> {
        Some(&self.holder(duty)?.holder.as_ref()?.instance)
    }

    /// A live member.
    pub fn member(&self, instance: &InstanceId) -> Option<&Member> {
        self.members.iter().find(|member| member.instance == *instance)
    }

    /// A live member, or a refusal.
    pub(crate) fn live_member(&self, instance: &InstanceId) -> Result<&Member, OperateError> {
        self.member(instance).ok_or_else(|| {
            OperateError::not_there(format!("{instance} is not a member of {}", self.name))
        })
    }

    /// A live member that follows the group's document, or a refusal.
    pub(crate) fn participant(&self, instance: &InstanceId) -> Result<&Member, OperateError> {
        let member = self.live_member(instance)?;
        if member.nonce.is_none() || MemberStatus::read(&member.note).is_none() {
            let what = format!("{instance} does not read the document of {}", self.name);
            return Err(OperateError::conflict(what));
        }
        Ok(member)
    }

    /// A participant that was not evicted, or a refusal.
    pub(crate) fn active_participant(&self, instance: &InstanceId) -> Result<(), OperateError> {
        match self.participant(instance)?.evicted {
            true => Err(OperateError::conflict(format!("{instance} is evicted"))),
            false => Ok(()),
        }
    }

    /// Whether another member would take over from this one.
    pub fn has_successor(&self, document: &GroupConfig, instance: &InstanceId) -> bool {
        let only = self.member(instance).and_then(only_duty);
        let candidates = candidates(&self.members, document);
        let mut others = candidates.iter().filter(|other| other.member.instance != *instance);
        others.any(|other| other.only == only && takes_duties(&other.member))
    }

    /// Rosters that the members compute: one for the group, or one per standby duty. A free duty of
    /// a list of targets may no longer be listed, so it counts only if it is `asked`.
    pub fn rosters(&self, asked: Option<&DutyId>) -> Vec<GroupSnapshot> {
        let held = self.held();
        let roster = |duties: Vec<DutyId>, only: Option<&DutyId>| {
            let listing = Listing::new(duties.into_iter().map(Target::new));
            GroupSnapshot::new(&self.members, &held, &self.document, &listing, only)
        };
        let known = self.known_duties().into_iter();
        match self.layout() {
            Some(Layout::Standby) => {
                known.map(|duty| roster(vec![duty.clone()], Some(&duty))).collect()
            }
            Some(Layout::Shards(_)) => vec![roster(known.collect(), None)],
            Some(Layout::Targets) | None => {
                let counts = |duty: &DutyId| held.contains_key(duty) || asked == Some(duty);
                let known = known.chain(asked.cloned()).filter(counts);
                vec![roster(known.collect(), None)]
            }
        }
    }

    /// Roster that plans a duty.
    pub fn roster_of(&self, duty: &DutyId) -> GroupSnapshot {
        let standby = matches!(self.layout(), Some(Layout::Standby));
        let mut rosters = self.rosters(Some(duty)).into_iter();
        let plans = |r: &GroupSnapshot| !standby || r.duties.iter().any(|c| c.duty == *duty);
        rosters.find(plans).unwrap_or_else(|| {
            let (held, listing) = (BTreeMap::new(), Listing::default());
            GroupSnapshot::new(&self.members, &held, &self.document, &listing, Some(duty))
        })
    }

    /// Words for the state of a member that differs from the usual.
    pub fn member_states(&self, member: &Member) -> Vec<&'static str> {
        member_states(member, &self.document)
    }
}

/// Words for the state of a member under a document, if it differs from the usual.
pub(crate) fn member_states(member: &Member, document: &GroupConfig) -> Vec<&'static str> {
    let status = MemberStatus::read(&member.note);
    let says = |test: fn(&MemberStatus) -> bool| status.as_ref().is_some_and(test);
    let words = [
        (member.nonce.is_none(), "foreign"),
        (member.nonce.is_some() && status.is_none(), "takes-no-part"),
        (member.evicted, "evicted"),
        (says(|status| !status.keeps) && !member.evicted, "leaving"),
        (says(|status| status.keeps && !status.takes), "waiting"),
        (says(|status| status.failing), "failing"),
        (document.drained.contains_key(&member.instance), "drained"),
        (document.cordoned.contains(&member.instance), "cordoned"),
    ];
    words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect()
}

/// The only duty that a standby member takes.
pub(crate) fn only_duty(member: &Member) -> Option<DutyId> {
    MemberStatus::read(&member.note).and_then(|status| status.only)
}

/// Returns a member as the roster counts it under a document; `None` if it does not.
pub(crate) fn roster_member(member: &Member, document: &GroupConfig) -> Option<RosterMember> {
    let foreign = member.nonce.is_none().then(|| MemberStatus::with_room(usize::MAX));
    let mut planned = MemberStatus::read(&member.note).or(foreign)?.roster_member(member);
    document.adjust(&mut planned);
    Some(planned)
}

/// A member that the roster counts.
pub(crate) struct Candidate {
    pub(crate) member: RosterMember,
    /// The only duty that it takes.
    pub(crate) only: Option<DutyId>,
}

/// Whether the roster would give duties to a member.
pub(crate) fn takes_duties(member: &RosterMember) -> bool {
    member.takes && member.keeps && member.weight > 0 && member.room > 0
}

/// Returns the candidates for duties under a document.
pub(crate) fn candidates(members: &[Member], document: &GroupConfig) -> Vec<Candidate> {
    let candidate = |one: &Member| {
        Some(Candidate { member: roster_member(one, document)?, only: only_duty(one) })
    };
    members.iter().filter_map(candidate).collect()
}

/// Refuses a change that leaves duties without any member that would take them. Duties that had no
/// such member before do not count.
pub(crate) fn check_takers(
    before: &StoredGroup,
    after: (&[Member], &GroupConfig),
) -> Result<(), OperateError> {
    let before_it = candidates(&before.members, &before.document);
    let after_it = candidates(after.0, after.1);
    let has = |candidates: &[Candidate], only: &Option<DutyId>| {
        candidates.iter().any(|one| one.only == *only && takes_duties(&one.member))
    };
    for member in &before.members {
        let only = only_duty(member);
        if has(&before_it, &only) && !has(&after_it, &only) {
            let (name, instance) = (&before.name, &member.instance);
            let what = format!("no member of {name} would take the duties of {instance}");
            return Err(OperateError::refused(Code::LastMember, what));
        }
    }
    Ok(())
}

/// Whether a pin names this member.
pub(crate) fn is_pinned_to(member: &RosterMember, pin: &Pin) -> bool {
    match pin {
        Pin::Instance(instance) => member.instance == *instance,
        Pin::Name(name) => member.name.as_ref() == Some(name),
        Pin::Zone(zone) => member.zone.as_ref() == Some(zone),
    }
}

/// Refuses more pinned duties than the pin's members have room for; several pins may lead to the
/// same single member.
pub(crate) fn check_room(
    pin: &Pin,
    candidates: &[Candidate],
    document: &GroupConfig,
) -> Result<(), OperateError> {
    let at = |pin: &Pin| -> Vec<&Candidate> {
        candidates.iter().filter(|one| is_pinned_to(&one.member, pin)).collect()
    };
    let single = |pin: &Pin| match at(pin)[..] {
        [one] => Some(&one.member.instance),
        _ => None,
    };
    let (there, only) = (at(pin), single(pin));
    let room = there.iter().fold(0_usize, |sum, one| sum.saturating_add(one.member.room));
    let leads_there = |other: &&Pin| *other == pin || (only.is_some() && single(other) == only);
    let pinned = document.pins.values().filter(leads_there).count();
    if there.is_empty() || pinned <= room {
        return Ok(());
    }
    let what = format!("{} would be pinned to {pin}, which has room for {room}", duties(pinned));
    Err(OperateError::conflict(what))
}

/// Formats a count: `1 duty`, `2 duties`.
pub fn duties(count: usize) -> String {
    counted(count, "duty", "duties")
}
