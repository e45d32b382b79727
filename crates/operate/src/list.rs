//! List: groups with their duties, members and directives.

use serde::Serialize;
use tenure_core::engine::GroupConfig;
use tenure_core::store::{CurrentHolder, Holder, Member, view_hash};
use tenure_core::{DutyKey, Epoch, GroupName, InstanceId, Note, Store, StoreError};
use tenure_store::signing::{TrustedIdentities, split_note};

use crate::directive::{Directive, directives};
use crate::error::nothing_happened;
use crate::serialize::{millis, optional_epoch, optional_text, text};

/// A group with its duties and members.
#[derive(Clone, Debug, Serialize)]
pub struct GroupListing {
    /// Name of the group.
    #[serde(serialize_with = "text")]
    pub group: GroupName,
    /// Duties that were granted.
    pub duties: Vec<DutyListing>,
    /// Members.
    pub members: Vec<MemberListing>,
    /// Directives; `None` if the group's document cannot be read.
    pub in_force: Option<Vec<Directive>>,
    /// Hash of members and duties: equal for members that see the same.
    pub view: String,
}

/// A duty in a listing.
#[derive(Clone, Debug, Serialize)]
pub struct DutyListing {
    /// Duty.
    #[serde(serialize_with = "text")]
    pub duty: DutyKey,
    /// Holder; `None` if it is free.
    #[serde(serialize_with = "optional_text")]
    pub holder: Option<InstanceId>,
    /// Newest epoch.
    #[serde(serialize_with = "optional_epoch")]
    pub epoch: Option<Epoch>,
    /// Milliseconds until the holder's lease expires.
    pub remaining_ms: Option<u64>,
}

/// A member in a listing.
#[derive(Clone, Debug, Serialize)]
pub struct MemberListing {
    /// Instance.
    #[serde(serialize_with = "text")]
    pub instance: InstanceId,
    /// Milliseconds until its lease expires.
    pub remaining_ms: u64,
    /// Whether it was evicted.
    pub evicted: bool,
    /// Whether it only shares the keys and has no session.
    pub foreign: bool,
    /// Note of its session.
    pub note: String,
    /// Name of its identity, if identities were verified and it is trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Reason why it is not trusted, if identities were verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untrusted: Option<&'static str>,
}

/// A member that is not trusted.
#[derive(Clone, Debug, Serialize)]
pub struct UntrustedMember {
    /// Group.
    #[serde(serialize_with = "text")]
    pub group: GroupName,
    /// Instance.
    #[serde(serialize_with = "text")]
    pub instance: InstanceId,
    /// Reason.
    pub why: &'static str,
}

/// Lists the members of all groups that are not trusted. The store must be open without checks.
pub async fn untrusted(
    store: &dyn Store,
    trusted: &TrustedIdentities,
) -> Result<Vec<UntrustedMember>, StoreError> {
    let listings = list(store, None, Some(trusted)).await?;
    let of_group = |GroupListing { group, members, .. }: GroupListing| {
        let one = move |member: MemberListing| {
            let why = member.untrusted?;
            Some(UntrustedMember { group: group.clone(), instance: member.instance, why })
        };
        members.into_iter().filter_map(one)
    };
    Ok(listings.into_iter().flat_map(of_group).collect())
}

/// Lists one group, or all groups of the store. With `trusted`, members are verified; the store
/// must then be open without checks.
pub async fn list(
    store: &dyn Store,
    only: Option<GroupName>,
    trusted: Option<&TrustedIdentities>,
) -> Result<Vec<GroupListing>, StoreError> {
    let groups = match only {
        Some(group) => vec![group],
        None => store.groups().await?,
    };
    let mut listings = Vec::with_capacity(groups.len());
    for group in groups {
        listings.push(GroupListing::read(store, group, trusted).await.map_err(nothing_happened)?);
    }
    Ok(listings)
}

impl GroupListing {
    async fn read(
        store: &dyn Store,
        group: GroupName,
        trusted: Option<&TrustedIdentities>,
    ) -> Result<Self, StoreError> {
        let mut members = store.members(&group).await?;
        let identity = |member: &Member| match trusted?.member(&group, member) {
            Ok(name) => Some(Ok(name.to_owned())),
            Err(why) => Some(Err(why)),
        };
        let identities: Vec<_> = members.iter().map(identity).collect();
        for member in &mut members {
            member.note = Note::with_identity(split_note(&member.note).0)?;
        }
        let holders = store.holders(&group).await?;
        let document = GroupConfig::read(&store.group_document(&group).await?);
        let view = format!("{:016x}", view_hash(&members, &holders));
        let duty = |Holder { duty, epoch, holder }| {
            let remaining_ms = holder.as_ref().map(|now: &CurrentHolder| millis(now.remaining));
            DutyListing { duty, epoch, remaining_ms, holder: holder.map(|now| now.instance) }
        };
        let member = |(member, identity): (Member, Option<Result<String, _>>)| MemberListing {
            untrusted: identity.as_ref().and_then(|identity| identity.as_ref().err().copied()),
            identity: identity.and_then(Result::ok),
            remaining_ms: millis(member.remaining),
            evicted: member.evicted,
            foreign: member.nonce.is_none(),
            note: member.note.as_str().to_owned(),
            instance: member.instance,
        };
        Ok(Self {
            view,
            in_force: document.ok().map(|document| directives(&group, &document)),
            duties: holders.into_iter().map(duty).collect(),
            members: members.into_iter().zip(identities).map(member).collect(),
            group,
        })
    }
}
