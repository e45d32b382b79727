//! What is said of a plan is true of it.

use std::collections::BTreeSet;

use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;

/// Held by a seat, or brought there by a pin.
fn tied_to(n: usize, charges: &[Charge], plan: &Plan) -> usize {
    let n = Some(n as u32);
    let tied = |(charge, seat): &(&Charge, &Option<u32>)| {
        charge.holder == n || (charge.pin.is_some() && **seat == n)
    };
    charges.iter().zip(&plan.seats).filter(tied).count()
}

/// What must hold for each sentence.
fn is_true(n: usize, all: &[Opinion], seats: &[Seat], chosen: Option<usize>, tied: usize) -> bool {
    let (mine, seat) = (&all[n], &seats[n]);
    let other = |test: fn(&Opinion) -> bool| chosen.is_some_and(|chosen| test(&all[chosen]));
    match mine.why {
        Why::Pinned => mine.pin == Some(true),
        Why::Keeps => mine.holds && mine.given <= mine.share,
        Why::InZone => mine.zone == Some(true) && !mine.holds,
        Why::Highest => all.iter().all(|o| o.why != Why::Lower || o.score <= mine.score),
        Why::Drained => !seat.keeps && mine.given == 0,
        Why::NoWeight => seat.weight == 0 && mine.given == 0,
        Why::NoRoom => seat.room == 0 && mine.given == 0,
        Why::PinnedElsewhere => mine.pin == Some(false) && other(|o| o.pin == Some(true)),
        Why::PinnedBeside => mine.pin == Some(true) && other(|o| o.pin == Some(true)),
        Why::Surplus => mine.holds && tied > mine.share,
        Why::Stays => !mine.holds && other(|o| o.holds),
        Why::Cordoned => !seat.takes,
        Why::HasShare | Why::Filled => mine.given == mine.share,
        Why::OtherZone => mine.zone == Some(false) && other(|o| o.zone == Some(true)),
        Why::Lower => chosen.is_some_and(|chosen| mine.score <= all[chosen].score),
        Why::ForeignHighest | Why::ForeignLower => false,
    }
}

proptest! {
    #[test]
    fn every_sentence_is_true(charges in any_charges(), seats in any_seats()) {
        let plan = plan(&charges, &seats);
        for at in 0..charges.len() {
            let all = explain(&charges, &seats, &plan, at);
            let chosen = plan.seats[at].map(|seat| seat as usize);
            let yes: Vec<usize> = (0..all.len()).filter(|n| all[*n].why.is_yes()).collect();
            prop_assert_eq!(&yes, &chosen.into_iter().collect::<Vec<_>>());
            for n in 0..all.len() {
                let tied = tied_to(n, &charges, &plan);
                prop_assert!(
                    is_true(n, &all, &seats, chosen, tied),
                    "{:?} of {} in {:?}", all[n], n, all
                );
            }
        }
    }
}

#[test]
fn every_sentence_is_said_some_time() {
    let mut runner = TestRunner::deterministic();
    let mut said = BTreeSet::new();
    for _ in 0..400 {
        let charges = any_charges().new_tree(&mut runner).unwrap().current();
        let seats = any_seats().new_tree(&mut runner).unwrap().current();
        let plan = plan(&charges, &seats);
        for at in 0..charges.len() {
            said.extend(explain(&charges, &seats, &plan, at).iter().map(|opinion| opinion.why));
        }
        for charge in &charges {
            said.extend(explain_foreign(charge, &seats).iter().map(|opinion| opinion.why));
        }
    }
    assert_eq!(said.len(), Why::ForeignLower as usize + 1, "{said:?}");
}

#[test]
fn the_foreign_rule_is_explained_as_it_is() {
    let (seats, charges) = (seats(4), charges(9));
    let members: Vec<_> = seats.iter().map(|seat| seat.instance.clone()).collect();
    for charge in &charges {
        let all = explain_foreign(charge, &seats);
        let yes = all.iter().position(|opinion| opinion.why.is_yes());
        assert_eq!(yes, foreign_owner(&charge.duty, &members));
    }
}
