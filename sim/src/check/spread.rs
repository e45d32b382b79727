//! Everybody has its share.

use tenure_core::DutyId;
use tenure_core::roster::{RosterDuty, plan};

use super::{CheckFinding, Final};

/// At the end each duty is where the roster wants it, given where the duties are: nobody has more
/// than its share, and nobody idles while others have more than they should.
pub(super) fn fair(last: &Final) -> Result<(), CheckFinding> {
    let charges = charges(last);
    // A duty that nobody has room for stays where it is, and a pinned one waits for its place.
    if !last.pins.is_empty() && is_short(last) {
        return Ok(());
    }
    let planned = plan(&charges, &last.seats);
    for (charge, seat) in charges.iter().zip(&planned.seats) {
        if charge.holder != *seat {
            let name = |seat: Option<u32>| match seat {
                Some(seat) => last.seats[seat as usize].instance.to_string(),
                None => "nobody".to_owned(),
            };
            let (is, should) = (name(charge.holder), name(*seat));
            let what = format!("{} is with {is} and should be with {should}", charge.duty);
            return Err(CheckFinding { checker: "spread", what });
        }
    }
    even(last)
}

/// Whether there is less room than duties.
pub(super) fn is_short(last: &Final) -> bool {
    plan(&charges(last), &last.seats).seats.contains(&None)
}

fn charges(last: &Final) -> Vec<RosterDuty> {
    let charge = |duty: &DutyId| {
        let held = last.held.iter().find(|(held, _)| held == duty);
        let seat = held.and_then(|(_, who)| last.seats.iter().position(|s| s.instance == *who));
        let (holder, pin) = (seat.map(|seat| seat as u32), last.pins.get(duty).cloned());
        RosterDuty { duty: duty.clone(), holder, zone: None, pin }
    };
    last.wanted.iter().map(charge).collect()
}

/// Checks a property of any roster: with equal weights and room for all, the shares differ by at
/// most one.
fn even(last: &Final) -> Result<(), CheckFinding> {
    let (Some(first), duties) = (last.seats.first(), last.wanted.len()) else {
        return Ok(());
    };
    if !last.pins.is_empty() {
        return Ok(());
    }
    let alike = |weight| weight == first.weight;
    if !last.seats.iter().all(|seat| alike(seat.weight) && seat.takes && seat.room >= duties) {
        return Ok(());
    }
    let count = |seat: &tenure_core::roster::RosterMember| {
        last.held.iter().filter(|(_, who)| *who == seat.instance).count()
    };
    let counts: Vec<usize> = last.seats.iter().map(count).collect();
    let (most, least) = (counts.iter().max().unwrap_or(&0), counts.iter().min().unwrap_or(&0));
    if most - least > 1 {
        let what = format!("the shares are {counts:?}");
        return Err(CheckFinding { checker: "spread", what });
    }
    Ok(())
}
