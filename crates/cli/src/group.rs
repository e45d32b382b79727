//! A group as the store shows it: what every command that tells or changes something reads first.

use tenure_core::engine::{Group, Status};
use tenure_core::roster::Seat;
use tenure_core::store::{Holder, Member};
use tenure_core::{Code, DutyId, GroupName, Store, StoreError, Version};

use crate::failure::nothing_happened;

/// A group as it was read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) version: Version,
    /// Its document, if that makes sense.
    pub(crate) group: Result<Group, StoreError>,
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
    Ok(Read { version: document.version, group: Group::read(&document), members, holders })
}

/// The one duty that a member is there for.
pub(crate) fn only(member: &Member) -> Option<DutyId> {
    Status::read(&member.note).and_then(|said| said.only)
}

/// The seat of a member as operators want it, if it takes part in planning at all.
pub(crate) fn seat(member: &Member, group: &Group) -> Option<Seat> {
    let foreign = member.nonce.is_none().then(|| Status::with_room(usize::MAX));
    let mut seat = Status::read(&member.note).or(foreign)?.seat(member);
    group.adjust(&mut seat);
    Some(seat)
}

/// `1 duty`, `2 duties`.
pub(crate) fn duties(count: usize) -> String {
    if count == 1 { "1 duty".to_owned() } else { format!("{count} duties") }
}
