//! Checks that every member has its share.

use tenure_core::DutyId;
use tenure_core::roster::{RosterDuty, plan};

use super::{CheckFinding, Final};

/// Checks that at the end each duty is where the roster plans it, given the current holders: no
/// member has more than its share, and none is idle while others have more than theirs.
pub(super) fn fair(last: &Final) -> Result<(), CheckFinding> {
    let duties = planned_duties(last);
    // A duty without room stays where it is, and a pinned one waits for room.
    if !last.pins.is_empty() && is_short(last) {
        return Ok(());
    }
    let planned = plan(&duties, &last.members);
    for (duty, member) in duties.iter().zip(&planned.holders) {
        if duty.holder != *member {
            let name = |member: Option<u32>| match member {
                Some(member) => last.members[member as usize].instance.to_string(),
                None => "nobody".to_owned(),
            };
            let (is, should) = (name(duty.holder), name(*member));
            let what = format!("{} is held by {is} and should be held by {should}", duty.duty);
            return Err(CheckFinding { checker: "spread", what });
        }
    }
    even(last)
}

/// Whether there is less room than there are duties.
pub(super) fn is_short(last: &Final) -> bool {
    plan(&planned_duties(last), &last.members).holders.contains(&None)
}

fn planned_duties(last: &Final) -> Vec<RosterDuty> {
    let planned = |duty: &DutyId| {
        let held = last.held.iter().find(|(held, _)| held == duty);
        let member =
            held.and_then(|(_, who)| last.members.iter().position(|one| one.instance == *who));
        let (holder, pin) = (member.map(|member| member as u32), last.pins.get(duty).cloned());
        RosterDuty { duty: duty.clone(), holder, zone: None, pin }
    };
    last.wanted.iter().map(planned).collect()
}

/// Checks a property of any roster: with equal weights and room for all, the shares differ by at
/// most one.
fn even(last: &Final) -> Result<(), CheckFinding> {
    let (Some(first), duties) = (last.members.first(), last.wanted.len()) else {
        return Ok(());
    };
    if !last.pins.is_empty() {
        return Ok(());
    }
    let alike = |weight| weight == first.weight;
    if !last
        .members
        .iter()
        .all(|member| alike(member.weight) && member.takes && member.room >= duties)
    {
        return Ok(());
    }
    let count = |member: &tenure_core::roster::RosterMember| {
        last.held.iter().filter(|(_, who)| *who == member.instance).count()
    };
    let counts: Vec<usize> = last.members.iter().map(count).collect();
    let (most, least) = (counts.iter().max().unwrap_or(&0), counts.iter().min().unwrap_or(&0));
    if most - least > 1 {
        let what = format!("the shares are {counts:?}");
        return Err(CheckFinding { checker: "spread", what });
    }
    Ok(())
}
