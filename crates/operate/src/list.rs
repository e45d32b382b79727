//! List: groups with their duties, members and directives.

use serde::Serialize;
use tenure_core::engine::GroupConfig;
use tenure_core::store::{CurrentHolder, Holder, Member, view_hash};
use tenure_core::{DutyKey, Epoch, GroupName, InstanceId, Store, StoreError};

use crate::directive::{Directive, directives};
use crate::error::nothing_happened;
use crate::polls::{self, PollStatus};
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
    /// Result of its last poll, if it is a target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll: Option<PollStatus>,
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
}

/// Lists one group, or all groups of the store.
pub async fn list(
    store: &dyn Store,
    only: Option<GroupName>,
) -> Result<Vec<GroupListing>, StoreError> {
    let groups = match only {
        Some(group) => vec![group],
        None => store.groups().await?,
    };
    let mut listings = Vec::with_capacity(groups.len());
    for group in groups {
        listings.push(GroupListing::read(store, group).await.map_err(nothing_happened)?);
    }
    Ok(listings)
}

impl GroupListing {
    async fn read(store: &dyn Store, group: GroupName) -> Result<Self, StoreError> {
        let members = store.members(&group).await?;
        let holders = store.holders(&group).await?;
        let document = GroupConfig::read(&store.group_document(&group).await?);
        let view = format!("{:016x}", view_hash(&members, &holders));
        let duties: Vec<DutyKey> = holders.iter().map(|holder| holder.duty.clone()).collect();
        let polls = polls::read(store, &duties).await?;
        let duty = |(Holder { duty, epoch, holder }, poll)| {
            let remaining_ms = holder.as_ref().map(|now: &CurrentHolder| millis(now.remaining));
            let holder = holder.map(|now| now.instance);
            DutyListing { duty, holder, epoch, remaining_ms, poll }
        };
        let member = |member: Member| MemberListing {
            remaining_ms: millis(member.remaining),
            evicted: member.evicted,
            foreign: member.nonce.is_none(),
            note: member.note.as_str().to_owned(),
            instance: member.instance,
        };
        Ok(Self {
            view,
            in_force: document.ok().map(|document| directives(&group, &document)),
            duties: holders.into_iter().zip(polls).map(duty).collect(),
            members: members.into_iter().map(member).collect(),
            group,
        })
    }
}
