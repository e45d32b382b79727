//! Pins: where duties must be.

use serde::Serialize;
use tenure_core::engine::GroupConfig;
use tenure_core::roster::Pin;
use tenure_core::{DutyId, DutyKey, GroupName, InstanceId, Store};

use crate::edit::{EditSummary, edit};
use crate::error::OperateError;
use crate::group::{StoredGroup, candidates, check_room, is_pinned_to, takes_duties};
use crate::serialize::{optional_text, text};

/// A pin to set or to remove.
#[derive(Clone, Debug)]
pub struct PinOptions {
    /// Duty.
    pub duty: DutyKey,
    /// Place where it must be; `None` removes the pin.
    pub to: Option<Pin>,
    /// Replace a different pin.
    pub replace: bool,
    /// Check everything and change nothing.
    pub dry_run: bool,
}

/// Outcome of setting or removing a pin.
#[derive(Clone, Debug, Serialize)]
pub struct PinReport {
    /// Change of the group's document.
    #[serde(flatten)]
    pub edit: EditSummary,
    /// Duty.
    #[serde(serialize_with = "text")]
    pub duty: DutyKey,
    /// New pin.
    #[serde(serialize_with = "optional_text")]
    pub to: Option<Pin>,
    /// Previous pin.
    #[serde(serialize_with = "optional_text")]
    pub before: Option<Pin>,
    /// Current holder.
    #[serde(serialize_with = "optional_text")]
    pub holder: Option<InstanceId>,
    /// A member that the pin names takes duties now.
    #[serde(skip)]
    pub reachable: bool,
    /// The holder is at the pin already.
    #[serde(skip)]
    pub in_place: bool,
}

/// A pinned duty.
#[derive(Clone, Debug, Serialize)]
pub struct PinEntry {
    /// Duty.
    #[serde(serialize_with = "text")]
    pub duty: DutyKey,
    /// Pin.
    #[serde(serialize_with = "text")]
    pub to: Pin,
    /// Current holder.
    #[serde(serialize_with = "optional_text")]
    pub holder: Option<InstanceId>,
}

/// Lists the pins of a group.
pub async fn list(store: &dyn Store, group: &GroupName) -> Result<Vec<PinEntry>, OperateError> {
    let snapshot = StoredGroup::read(store, group).await?;
    let entry = |(id, pin): (&DutyId, &Pin)| PinEntry {
        duty: DutyKey { group: group.clone(), id: id.clone() },
        to: pin.clone(),
        holder: snapshot.holding_instance(id).cloned(),
    };
    Ok(snapshot.document.pins.iter().map(entry).collect())
}

/// Sets or removes a pin.
pub async fn pin(store: &dyn Store, options: PinOptions) -> Result<PinReport, OperateError> {
    let PinOptions { duty, to, replace, dry_run } = options;
    let change = |before: &StoredGroup, document: &mut GroupConfig| {
        before.check_duty(&duty.id)?;
        let Some(pin) = &to else {
            document.pins.remove(&duty.id);
            return Ok(());
        };
        match document.pins.insert(duty.id.clone(), pin.clone()) {
            Some(other) if other != *pin && !replace => {
                let what = format!("{duty} is pinned to {other}; --replace replaces it");
                Err(OperateError::conflict(what))
            }
            _ => check_pin(&duty.id, pin, before, document),
        }
    };
    let (before, document, edit) = edit(store, &duty.group, dry_run, change).await?;
    let holder = before.holding_instance(&duty.id);
    let candidates = candidates(&before.members, &document);
    let at_pin =
        || candidates.iter().filter(|one| to.iter().any(|to| is_pinned_to(&one.member, to)));
    Ok(PinReport {
        reachable: at_pin().any(|one| takes_duties(&one.member)),
        in_place: at_pin().any(|one| Some(&one.member.instance) == holder),
        holder: holder.cloned(),
        before: before.document.pins.get(&duty.id).cloned(),
        edit,
        duty,
        to,
    })
}

/// Refuses a pin that cannot be followed. A name or zone may appear later, an instance may not.
fn check_pin(
    duty: &DutyId,
    pin: &Pin,
    group: &StoredGroup,
    document: &GroupConfig,
) -> Result<(), OperateError> {
    let candidates = candidates(&group.members, document);
    if let Pin::Instance(instance) = pin {
        let member = group.live_member(instance)?;
        let candidate = candidates.iter().find(|one| one.member.instance == *instance);
        let why = match candidate {
            _ if member.evicted => Some("is evicted"),
            _ if document.drained.contains_key(instance) => Some("is drained"),
            _ if document.cordoned.contains(instance) => Some("is cordoned"),
            _ if member.nonce.is_none() => Some("only shares the keys"),
            None => Some("takes no duties"),
            Some(one) if one.member.weight == 0 => Some("has weight 0"),
            Some(one) if !takes_duties(&one.member) => Some("takes no duties now"),
            Some(_) => None,
        };
        if let Some(why) = why {
            return Err(OperateError::conflict(format!("{instance} {why}")));
        }
        if let Some(only) = candidate.and_then(|one| one.only.as_ref()).filter(|id| *id != duty) {
            let what = format!("{instance} only takes {}/{only}", group.name);
            return Err(OperateError::conflict(what));
        }
    }
    check_room(pin, &candidates, document)
}
