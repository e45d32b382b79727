//! A group as the store shows it: what every command that tells or changes something reads first.

use tenure_core::engine::{GroupConfig, MemberStatus};
use tenure_core::roster::{Pin, RosterMember};
use tenure_core::store::{Holder, Member};
use tenure_core::text::counted;
use tenure_core::{Code, DutyId, GroupName, Store, StoreError, Version};

use crate::failure::nothing_happened;

/// A group as it was read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) version: Version,
    /// Its document, if that makes sense.
    pub(crate) group: Result<GroupConfig, StoreError>,
    pub(crate) members: Vec<Member>,
    pub(crate) holders: Vec<Holder>,
}

/// Reads a group that must be there.
pub(crate) async fn read(store: &dyn Store, name: &GroupName) -> Result<Read, StoreError> {
    gather(store, name).await.map_err(nothing_happened)
}

async fn gather(store: &dyn Store, name: &GroupName) -> Result<Read, StoreError> {
    // The document first: whoever is named in it and not among the members has ended or lapsed.
    let document = store.group_document(name).await?;
    let members = store.members(name).await?;
    let holders = store.holders(name).await?;
    let unknown = document.version == Version::ZERO && members.is_empty() && holders.is_empty();
    if unknown && !store.groups().await?.contains(name) {
        return Err(StoreError::refused(Code::NotThere, format!("the group {name}")));
    }
    Ok(Read { version: document.version, group: GroupConfig::read(&document), members, holders })
}

/// The one duty that a member is there for.
pub(crate) fn only(member: &Member) -> Option<DutyId> {
    MemberStatus::read(&member.note).and_then(|said| said.only)
}

/// The seat of a member as operators want it, if it takes part in planning at all.
pub(crate) fn seat(member: &Member, group: &GroupConfig) -> Option<RosterMember> {
    let foreign = member.nonce.is_none().then(|| MemberStatus::with_room(usize::MAX));
    let mut seat = MemberStatus::read(&member.note).or(foreign)?.seat(member);
    group.adjust(&mut seat);
    Some(seat)
}

/// A member that takes duties by the roster.
pub(crate) struct Taker {
    pub(crate) seat: RosterMember,
    /// The one duty that it is there for.
    pub(crate) only: Option<DutyId>,
}

impl Taker {
    /// Whether it would be given duties.
    pub(crate) fn takes(&self) -> bool {
        is_taker(&self.seat)
    }
}

/// Whether a seat would be given duties.
pub(crate) fn is_taker(seat: &RosterMember) -> bool {
    seat.takes && seat.keeps && seat.weight > 0 && seat.room > 0
}

/// Who holds duties by the roster, as operators want it in this document.
pub(crate) fn takers(members: &[Member], group: &GroupConfig) -> Vec<Taker> {
    let taker = |member: &Member| Some(Taker { seat: seat(member, group)?, only: only(member) });
    members.iter().filter_map(taker).collect()
}

/// Refuses to take the duties from the last one who would have them. Where nobody has taken them
/// before, nothing is taken away.
pub(crate) fn check_takers(
    name: &GroupName,
    before: (&[Member], &GroupConfig),
    after: (&[Member], &GroupConfig),
) -> Result<(), StoreError> {
    let [before_it, after_it] = [before, after].map(|(members, group)| takers(members, group));
    let has = |takers: &[Taker], only: &Option<DutyId>| {
        takers.iter().any(|taker| taker.only == *only && taker.takes())
    };
    for member in before.0 {
        let only = only(member);
        if has(&before_it, &only) && !has(&after_it, &only) {
            let what =
                format!("nobody in {name} would be left to take what {} has", member.instance);
            return Err(StoreError::refused(Code::LastMember, what));
        }
    }
    Ok(())
}

/// Whether a pin leads to this seat.
pub(crate) fn is_at(seat: &RosterMember, pin: &Pin) -> bool {
    match pin {
        Pin::Instance(instance) => seat.instance == *instance,
        Pin::Name(name) => seat.name.as_ref() == Some(name),
        Pin::Zone(zone) => seat.zone.as_ref() == Some(zone),
    }
}

/// Refuses more pinned duties than there is room for: at this place, and at a member that is the
/// only one where several pins lead.
pub(crate) fn check_room(
    pin: &Pin,
    takers: &[Taker],
    group: &GroupConfig,
) -> Result<(), StoreError> {
    let at = |pin: &Pin| -> Vec<&Taker> {
        takers.iter().filter(|taker| is_at(&taker.seat, pin)).collect()
    };
    let there = at(pin);
    let alone = match &there[..] {
        [] => return Ok(()),
        [one] => Some(&one.seat.instance),
        _ => None,
    };
    let room = there.iter().fold(0_usize, |sum, taker| sum.saturating_add(taker.seat.room));
    let leads_there = |other: &&Pin| {
        *other == pin
            || alone
                .is_some_and(|alone| matches!(&at(other)[..], [one] if one.seat.instance == *alone))
    };
    let pinned = group.pins.values().filter(leads_there).count();
    if pinned <= room {
        return Ok(());
    }
    let what = format!("{} would be pinned to {pin}, which has room for {room}", duties(pinned));
    Err(StoreError::refused(Code::Conflict, what))
}

/// `1 duty`, `2 duties`.
pub(crate) fn duties(count: usize) -> String {
    counted(count, "duty", "duties")
}
