//! A group in the past: the audit trail replayed up to a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::engine::{GroupConfig, Layout, MemberSettings, MemberStatus};
use tenure_core::store::{AuditEntry, AuditKind, CurrentHolder, Holder, Member};
use tenure_core::{DutyId, DutyKey, Epoch, InstanceId, Nonce, StoreError};

use crate::audit::AuditTrail;
use crate::clock::sha256;
use crate::group::StoredGroup;
use crate::serialize::timestamp;

/// Notes on facts that an audit trail never records.
const NOT_RECORDED: [&str; 2] = [
    "an expired session leaves no record: its instance counts as a member until the trail shows \
     the end of one of its holds",
    "the layout is the current one, and so are weights, rooms, zones and names of members that \
     still run; others count with weight 1 and without a zone",
];

/// Note for a document without a record of its changes.
const NEVER_RECORDED: &str = "the directives of that time are not known: the current pins and \
    weights are used, without pauses, drains and cordons";

/// Note for a record that does not match the document.
const NOT_CERTAIN: &str = "the directives of that time are not certain: something was changed \
    without a record, or a clock was ahead";

/// A group in the past, as far as the trail shows.
pub(crate) struct PastGroup {
    pub(crate) group: StoredGroup,
    /// Whether the directives of that time are known.
    pub(crate) certain: bool,
    /// Limits of the reconstruction.
    pub(crate) notes: Vec<String>,
}

/// Time to reconstruct and current time, in milliseconds since 1970.
#[derive(Clone, Copy)]
pub(crate) struct ReplayTimes {
    pub(crate) at: u64,
    pub(crate) now: u64,
}

/// Reconstructs the group from its state `now`; `asked` is the duty of interest.
pub(crate) fn at(
    trail: &AuditTrail,
    now: &StoredGroup,
    asked: &DutyId,
    times: ReplayTimes,
) -> Result<PastGroup, StoreError> {
    let at = times.at;
    let holders = holders(trail, now, at)?;
    let mut members = members(trail, now, at);
    let holds = |instance: &InstanceId| {
        holders.iter().filter_map(|h| h.holder.as_ref()).any(|of| of.instance == *instance)
    };
    // A holder was a member, even if the trail no longer contains its join.
    members
        .extend(holders.iter().filter_map(|holder| Some(holder.holder.as_ref()?.instance.clone())));
    let mut notes: Vec<String> = NOT_RECORDED.iter().map(|note| (*note).to_owned()).collect();
    let gone = members.iter().filter(|instance| now.member(instance).is_none() && !holds(instance));
    let gone: Vec<String> = gone.map(ToString::to_string).collect();
    if !gone.is_empty() {
        notes.push(format!("may have ended earlier without a record: {}", gone.join(", ")));
    }
    let member = |instance: &InstanceId| member(instance, now, asked);
    let members = members.iter().map(member).collect::<Result<Vec<_>, _>>()?;
    let (document, doubt) = document(now, times)?;
    let certain = doubt.is_none();
    notes.extend(doubt);
    let (name, version) = (now.name.clone(), now.version);
    let group = StoredGroup { name, version, document, members, holders };
    Ok(PastGroup { group, certain, notes })
}

/// Returns the group's document at that time, and a note if it is uncertain.
fn document(
    now: &StoredGroup,
    times: ReplayTimes,
) -> Result<(GroupConfig, Option<String>), StoreError> {
    let Some(then) = now.document.at(times.at, times.now, sha256)? else {
        let group = GroupConfig {
            settings: now.document.settings,
            pins: now.document.pins.clone(),
            weights: now.document.weights.clone(),
            ..GroupConfig::default()
        };
        return Ok((group, Some(NEVER_RECORDED.to_owned())));
    };
    let from = timestamp(then.from);
    let doubt = match times.at < then.from {
        _ if then.doubtful => Some(NOT_CERTAIN.to_owned()),
        true => Some(format!(
            "directives from before {from} are not known: this assumes that there were none"
        )),
        false => None,
    };
    Ok((then.config, doubt))
}

/// Holders at that time. If the trail begins within a hold, the end of the hold shows its holder;
/// if the trail has no entry, the holder is the current one.
fn holders(trail: &AuditTrail, now: &StoredGroup, at: u64) -> Result<Vec<Holder>, StoreError> {
    // The last entry of each duty up to that time, and the first one after it.
    let mut around: BTreeMap<&DutyId, [Option<&AuditEntry>; 2]> = BTreeMap::new();
    for holder in &now.holders {
        around.entry(&holder.duty.id).or_default();
    }
    for (duty, entry) in trail.0.iter().filter_map(|entry| Some((entry.duty.as_ref()?, entry))) {
        let [before, after] = around.entry(&duty.id).or_default();
        match entry.unix_ms <= at {
            true => *before = Some(entry),
            false => *after = after.or(Some(entry)),
        }
    }
    let mut holders = Vec::new();
    for (duty, [before, after]) in around {
        let held = |entry: &AuditEntry| Some((entry.instance.clone(), entry.epoch));
        let of = match (before, after) {
            (Some(entry), _) if entry.kind == AuditKind::Granted => held(entry),
            (Some(_), _) => None,
            (None, Some(entry)) => match entry.kind {
                AuditKind::Granted | AuditKind::Forgotten => None,
                _ => held(entry),
            },
            (None, None) => now
                .holder(duty)
                .and_then(|holder| Some((holder.holder.as_ref()?.instance.clone(), holder.epoch))),
        };
        if of.is_none() && before.is_none() {
            continue;
        }
        let epoch: Option<Epoch> = match &of {
            Some((_, epoch)) => *epoch,
            None => before.and_then(|entry| entry.epoch),
        };
        let holder = of.map(|(instance, _)| CurrentHolder { instance, remaining: Duration::ZERO });
        let duty = DutyKey::new(now.name.as_str(), duty.as_str())?;
        holders.push(Holder { duty, epoch, holder });
    }
    Ok(holders)
}

/// Returns the members at that time. An expired hold ends the session under which it was granted.
fn members(trail: &AuditTrail, now: &StoredGroup, at: u64) -> BTreeSet<InstanceId> {
    let mut here: BTreeMap<&InstanceId, bool> = BTreeMap::new();
    // Grants since the instance joined: an earlier hold that expires does not end this session.
    let mut granted: BTreeMap<(&InstanceId, &DutyId), Epoch> = BTreeMap::new();
    let mut first_after: BTreeMap<&InstanceId, &AuditEntry> = BTreeMap::new();
    for entry in &trail.0 {
        let who = &entry.instance;
        if entry.unix_ms > at {
            first_after.entry(who).or_insert(entry);
            continue;
        }
        match (entry.kind, &entry.duty) {
            (AuditKind::Joined, _) => {
                granted.retain(|(instance, _), _| *instance != who);
                here.insert(who, true);
            }
            (AuditKind::Left, _) | (AuditKind::Evicted, None) => {
                here.insert(who, false);
            }
            (AuditKind::Granted, Some(duty)) => {
                here.insert(who, true);
                granted.extend(entry.epoch.map(|epoch| ((who, &duty.id), epoch)));
            }
            (AuditKind::Expired, Some(duty)) => {
                let of_this = granted.get(&(who, &duty.id)).copied() == entry.epoch;
                if of_this || !here.contains_key(who) {
                    here.insert(who, false);
                }
            }
            _ => {}
        }
    }
    // The first later entry shows whether the instance had already joined.
    for (who, entry) in first_after {
        here.entry(who).or_insert(entry.kind != AuditKind::Joined);
    }
    // A current member without any entry joined before the trail began.
    for member in &now.members {
        here.entry(&member.instance).or_insert(true);
    }
    here.into_iter().filter(|(_, is)| *is).map(|(who, _)| who.clone()).collect()
}

/// Returns a member at that time. Its status is constant while its process runs, except for whether
/// it takes and keeps duties.
fn member(instance: &InstanceId, now: &StoredGroup, asked: &DutyId) -> Result<Member, StoreError> {
    let lives = now.member(instance);
    let standby = matches!(now.layout(), Some(Layout::Standby));
    let status = match lives {
        Some(member) => MemberStatus::read(&member.note),
        None => Some(MemberStatus {
            only: standby.then(|| asked.clone()),
            ..MemberStatus::with_room(MemberSettings::DEFAULT_ROOM)
        }),
    };
    let note = match (status, lives) {
        (Some(status), _) => MemberStatus { takes: true, keeps: true, ..status }.note()?,
        // A member without a status takes no part, now as then.
        (None, member) => member.map_or_else(Default::default, |member| member.note.clone()),
    };
    let nonce = lives.map_or(Some(Nonce::from_entropy(0)), |member| member.nonce);
    let instance = instance.clone();
    Ok(Member { instance, nonce, note, remaining: Duration::ZERO, evicted: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{GroupName, Version};

    fn entry(unix_ms: u64, kind: AuditKind, who: &str, duty: Option<(&str, u64)>) -> AuditEntry {
        AuditEntry {
            seq: unix_ms,
            unix_ms,
            kind,
            instance: InstanceId::new(who).unwrap(),
            duty: duty.map(|(id, _)| DutyKey::new("g", id).unwrap()),
            epoch: duty.map(|(_, epoch)| Epoch::new(epoch).unwrap()),
            reason: String::new(),
        }
    }

    /// A group in which `c` lives and holds `old` under epoch 9.
    fn now() -> StoredGroup {
        let mut state = StoredGroup {
            name: GroupName::new("g").unwrap(),
            version: Version::ZERO,
            document: GroupConfig::default(),
            members: Vec::new(),
            holders: Vec::new(),
        };
        let c = InstanceId::new("c").unwrap();
        let duty = DutyId::new("old").unwrap();
        state.members.push(member(&c, &state, &duty).unwrap());
        state.holders.push(Holder {
            duty: DutyKey::new("g", "old").unwrap(),
            epoch: Epoch::new(9).ok(),
            holder: Some(CurrentHolder { instance: c, remaining: Duration::ZERO }),
        });
        state
    }

    /// Returns members and holders at a time.
    fn seen(entries: &[AuditEntry], time: u64) -> (String, String) {
        let (trail, asked) = (AuditTrail(entries.to_vec()), DutyId::new("d").unwrap());
        let times = ReplayTimes { at: time, now: 100 };
        let state = at(&trail, &now(), &asked, times).unwrap().group;
        let members: Vec<_> = state.members.iter().map(|m| m.instance.to_string()).collect();
        let held = state.holders.iter().map(|holder| {
            let of = holder.holder.as_ref().map_or("-".to_owned(), |of| of.instance.to_string());
            format!("{}={of}/{}", holder.duty.id, holder.epoch.map_or(0, Epoch::get))
        });
        (members.join(" "), held.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn an_expired_hold_ends_its_session() {
        use AuditKind::{Expired, Granted, Joined};
        let entries = [
            entry(1, Joined, "a", None),
            entry(2, Granted, "a", Some(("d", 1))),
            entry(3, Joined, "b", None),
            entry(4, Expired, "a", Some(("d", 1))),
            entry(5, Granted, "b", Some(("d", 2))),
        ];
        let held = |d: &str| format!("d={d} old=c/9");
        assert_eq!(seen(&entries, 1), ("a c".to_owned(), "old=c/9".to_owned()));
        assert_eq!(seen(&entries, 3), ("a b c".to_owned(), held("a/1")));
        assert_eq!(seen(&entries, 4), ("b c".to_owned(), held("-/1")));
        assert_eq!(seen(&entries, 9), ("b c".to_owned(), held("b/2")));
        // The expiry of an old hold does not end a session that began later.
        let mut again = entries.to_vec();
        again.insert(3, entry(3, Joined, "a", None));
        assert_eq!(seen(&again, 9).0, "a b c");
    }

    #[test]
    fn what_began_before_the_trail_is_known_by_its_end() {
        use AuditKind::{Evicted, Granted, Joined, Left, Released};
        let entries = [
            entry(5, Granted, "b", Some(("x", 1))),
            entry(6, Released, "a", Some(("d", 4))),
            entry(7, Left, "a", None),
            entry(8, Joined, "e", None),
            entry(9, Evicted, "b", None),
        ];
        let before = ("a b c".to_owned(), "d=a/4 old=c/9 x=b/1".to_owned());
        assert_eq!(seen(&entries, 5), before);
        assert_eq!(
            seen(&entries, 8),
            ("a b c e".replace("a ", ""), "d=-/4 old=c/9 x=b/1".to_owned())
        );
        // A holder counts as a member until its hold is known to have ended.
        assert_eq!(seen(&entries, 9).0, "b c e");
    }
}
