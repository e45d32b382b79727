//! Explain: who holds a duty, who should, and why; now or at an earlier time.

use std::time::Duration;

use serde::Serialize;
use tenure_core::engine::GroupSnapshot;
use tenure_core::roster::{Pin, PlacementReport};
use tenure_core::store::{AuditEntry, AuditKind, CurrentHolder, Member};
use tenure_core::{Code, DutyKey, Epoch, InstanceId, Label, Store};

use crate::audit::AuditTrail;
use crate::clock;
use crate::error::{OperateError, nothing_happened};
use crate::group::{StoredGroup, TARGETS_NOTE, roster_member};
use crate::past::{self, ReplayTimes};
use crate::polls::{self, PollStatus};
use crate::serialize::{
    entries, millis, optional_epoch, optional_text, signed_timestamp, text, timestamp,
};

/// A time in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastTime {
    /// Milliseconds since 1970.
    At(i64),
    /// Time before now.
    Ago(Duration),
}

impl PastTime {
    /// Resolves the time by the store's clock; a time outside the audit trail is refused.
    fn resolve(self, trail: &AuditTrail, now: u64) -> Result<u64, OperateError> {
        let begins = trail.begins().ok_or_else(|| "this group has no audit entries yet".into());
        let resolved = begins.and_then(|begins| self.within(begins, now));
        resolved.map_err(|what: String| OperateError::refused(Code::NoRecord, what))
    }

    /// Returns the time if it lies between the two, else a description of the error.
    fn within(self, begins: u64, now: u64) -> Result<u64, String> {
        let (at, given) = match self {
            Self::Ago(ago) => (now.checked_sub(millis(ago)), format!("{ago:?} ago")),
            Self::At(ms) => (u64::try_from(ms).ok(), signed_timestamp(ms)),
        };
        match at {
            Some(at) if at > now => {
                Err(format!("{given} is in the future: now is {}", timestamp(now)))
            }
            Some(at) if at >= begins => Ok(at),
            _ => Err(format!("{given} is before the first entry, at {}", timestamp(begins))),
        }
    }
}

/// A duty with everything that decides its holder.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Duty.
    #[serde(serialize_with = "text")]
    pub duty: DutyKey,
    /// Time that is explained; `None` for now.
    pub at_unix_ms: Option<u64>,
    /// Holder.
    #[serde(serialize_with = "optional_text")]
    pub holder: Option<InstanceId>,
    /// Newest epoch.
    #[serde(serialize_with = "optional_epoch")]
    pub epoch: Option<Epoch>,
    /// Time of the grant; `None` if it is older than the audit trail.
    pub since_unix_ms: Option<u64>,
    /// Milliseconds until the holder's lease expires.
    pub remaining_ms: Option<u64>,
    /// Member that should hold it.
    #[serde(serialize_with = "optional_text")]
    pub should_be: Option<InstanceId>,
    /// Reason why the roster does not plan it.
    pub unplanned: Option<&'static str>,
    /// Whether it is paused, by itself or with its group.
    pub paused: bool,
    /// Pin.
    #[serde(serialize_with = "optional_text")]
    pub pin: Option<Pin>,
    /// Directives on the duty and on members, in words.
    pub in_force: Vec<String>,
    /// Whether the directives of that time are known.
    pub in_force_known: bool,
    /// The group has foreign members, whose rule decides.
    pub foreign_rule: bool,
    /// Members, with the reasons for and against each.
    pub members: Vec<ExplainedMember>,
    /// Result of its last poll, if it is a target and explained as it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll: Option<PollStatus>,
    /// Audit entries of the duty.
    #[serde(serialize_with = "entries")]
    pub transitions: Vec<AuditEntry>,
    /// Limits of the explanation.
    pub notes: Vec<String>,
}

/// A member, with the reasons for and against it.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedMember {
    /// Instance.
    #[serde(serialize_with = "text")]
    pub instance: InstanceId,
    /// Whether the roster chose it.
    pub chosen: Option<bool>,
    /// Score, in hexadecimal digits.
    pub score: Option<String>,
    /// Number of duties that are its share.
    pub share: Option<usize>,
    /// Number of duties that the roster gives to it.
    pub given: Option<usize>,
    /// Whether it holds the duty.
    pub holds: Option<bool>,
    /// Whether the pin of the duty names it.
    pub pin: Option<bool>,
    /// Weight.
    pub weight: Option<u32>,
    /// Most duties that it takes.
    pub room: Option<usize>,
    /// Whether it takes further duties.
    pub takes: Option<bool>,
    /// Whether it may keep its duties.
    pub keeps: Option<bool>,
    /// Zone.
    #[serde(serialize_with = "optional_text")]
    pub zone: Option<Label>,
    /// Name that survives restarts of its process.
    #[serde(serialize_with = "optional_text")]
    pub name: Option<Label>,
    /// Words for its state.
    pub state: Vec<&'static str>,
    /// Deciding rule.
    pub why: Option<&'static str>,
    /// Reason in words.
    pub sentence: &'static str,
}

/// Explains where a duty is, now or at an earlier time.
pub async fn explain(
    store: &dyn Store,
    duty: DutyKey,
    at: Option<PastTime>,
) -> Result<Explanation, OperateError> {
    let group = StoredGroup::read(store, &duty.group).await?;
    let trail = AuditTrail::read(store, &duty.group).await?;
    if !group.knows(&duty.id) && trail.of_duty(&duty.id).is_empty() {
        let what = format!("the duty {duty} was never granted, pinned or paused");
        return Err(OperateError::not_there(what));
    }
    let mut notes = Vec::new();
    if group.has_targets() {
        notes.push(TARGETS_NOTE.to_owned());
    }
    let Some(at) = at else {
        let polls = polls::read(store, std::slice::from_ref(&duty)).await;
        let poll = polls.map_err(nothing_happened)?.pop().flatten();
        let now = Explanation::new(duty, &group, &trail, None, true, notes);
        return Ok(Explanation { poll, ..now });
    };
    let now = clock::now(store).await?;
    let at = at.resolve(&trail, now)?;
    let past = past::at(&trail, &group, &duty.id, ReplayTimes { at, now })?;
    notes.extend(past.notes);
    Ok(Explanation::new(duty, &past.group, &trail, Some(at), past.certain, notes))
}

impl Explanation {
    fn new(
        duty: DutyKey,
        group: &StoredGroup,
        trail: &AuditTrail,
        at: Option<u64>,
        in_force_known: bool,
        notes: Vec<String>,
    ) -> Self {
        let (id, document) = (&duty.id, &group.document);
        let roster = group.roster_of(id);
        let opinions = roster.explain(id);
        let mut transitions = trail.of_duty(id);
        transitions.retain(|entry| at.is_none_or(|at| entry.unix_ms <= at));
        let granted = group.holder(id);
        let holder = granted.and_then(|holder| holder.holder.as_ref());
        let epoch = granted.and_then(|holder| holder.epoch);
        let is_grant = |e: &&&AuditEntry| e.kind == AuditKind::Granted && e.epoch == epoch;
        let since = transitions.iter().rev().find(is_grant).map(|entry| entry.unix_ms);
        let unplanned = if opinions.is_some() { None } else { Some(unplanned(group, &duty)) };
        let member =
            |member| ExplainedMember::new(group, member, &roster, opinions.as_deref(), unplanned);
        let remaining = |now: &CurrentHolder| millis(now.remaining);
        Self {
            at_unix_ms: at,
            holder: holder.map(|now| now.instance.clone()),
            epoch,
            since_unix_ms: holder.and(epoch).and(since),
            remaining_ms: holder.filter(|_| at.is_none()).map(remaining),
            should_be: roster.owner(id).map(|owner| owner.instance.clone()),
            unplanned,
            paused: document.pauses(id),
            pin: document.pins.get(id).cloned(),
            in_force: in_force(group, &duty),
            in_force_known,
            foreign_rule: roster.foreign,
            members: group.members.iter().map(member).collect(),
            poll: None,
            transitions: transitions.into_iter().cloned().collect(),
            notes,
            duty,
        }
    }
}

/// Reason why the roster does not plan a duty.
fn unplanned(group: &StoredGroup, duty: &DutyKey) -> &'static str {
    match &group.document {
        document if document.all_paused => "the whole group is paused",
        document if document.paused.contains(&duty.id) => "it is paused",
        _ if !group.known_duties().contains(&duty.id) => "it is not a duty of the group",
        _ => "its holder takes no part in the roster",
    }
}

/// Directives on a duty and on the members, in words.
fn in_force(group: &StoredGroup, duty: &DutyKey) -> Vec<String> {
    let (document, id) = (&group.document, &duty.id);
    let mut facts = Vec::new();
    facts.extend(document.pins.get(id).map(|pin| format!("pinned to {pin}")));
    facts.extend(document.all_paused.then(|| "the whole group is paused".to_owned()));
    facts.extend(document.paused.contains(id).then(|| "paused".to_owned()));
    let drained = document.drained.iter();
    facts.extend(drained.map(|(who, how)| format!("{who} is drained ({})", how.as_str())));
    facts.extend(document.cordoned.iter().map(|who| format!("{who} is cordoned")));
    let weights = document.weights.iter();
    facts.extend(weights.map(|(who, weight)| format!("{who} was given weight {weight}")));
    facts
}

impl ExplainedMember {
    fn new(
        group: &StoredGroup,
        member: &Member,
        roster: &GroupSnapshot,
        opinions: Option<&[PlacementReport]>,
        unplanned: Option<&'static str>,
    ) -> Self {
        let found = roster.members.binary_search_by(|one| one.instance.cmp(&member.instance)).ok();
        let opinion = found.and_then(|n| opinions?.get(n).copied());
        let planned = roster_member(member, &group.document);
        let sentence = match (opinion, unplanned, &planned) {
            (Some(opinion), _, _) => opinion.why.sentence(),
            (None, Some(why), _) => why,
            (None, None, None) => "takes no part: its note was not written by Tenure",
            (None, None, Some(_)) => "takes only a different duty",
        };
        Self {
            instance: member.instance.clone(),
            chosen: opinion.map(|o| o.why.is_yes()),
            score: opinion.map(|o| format!("{:016x}", o.score)),
            share: opinion.map(|o| o.share),
            given: opinion.map(|o| o.given),
            holds: opinion.map(|o| o.holds),
            pin: opinion.and_then(|o| o.pin),
            weight: planned.as_ref().map(|one| one.weight),
            room: planned.as_ref().map(|one| one.room),
            takes: planned.as_ref().map(|one| one.takes),
            keeps: planned.as_ref().map(|one| one.keeps),
            state: group.member_states(member),
            why: opinion.map(|o| o.why.as_str()),
            sentence,
            zone: planned.as_ref().and_then(|one| one.zone.clone()),
            name: planned.and_then(|one| one.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_within_the_trail() {
        let within = |time: PastTime| time.within(1_000, 1_771_149_700_000);
        assert_eq!(within(PastTime::At(1_771_149_600_123)), Ok(1_771_149_600_123));
        let ago = |seconds| PastTime::Ago(Duration::from_secs(seconds));
        assert_eq!(within(ago(600)), Ok(1_771_149_100_000));
        for before in [PastTime::At(999), PastTime::At(-1), ago(876_000 * 3600)] {
            let what = within(before).unwrap_err();
            assert!(
                what.ends_with("is before the first entry, at 1970-01-01T00:00:01.000Z"),
                "{what}"
            );
        }
        let what = within(PastTime::At(1_771_153_200_000)).unwrap_err();
        assert!(what.contains("is in the future: now is 2026-02-15T10:01:40.000Z"), "{what}");
    }
}
