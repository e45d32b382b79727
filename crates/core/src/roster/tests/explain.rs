//! What is said of a plan is true of it.

use std::collections::BTreeSet;

use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;

/// Held by a seat, or brought there by a pin.
fn tied_to(n: usize, charges: &[RosterDuty], plan: &Plan) -> usize {
    let n = Some(n as u32);
    let tied = |(charge, seat): &(&RosterDuty, &Option<u32>)| {
        charge.holder == n || (charge.pin.is_some() && **seat == n)
    };
    charges.iter().zip(&plan.seats).filter(tied).count()
}

/// What must hold for each sentence.
fn is_true(
    n: usize,
    all: &[PlacementReport],
    seats: &[RosterMember],
    chosen: Option<usize>,
    tied: usize,
) -> bool {
    let (mine, seat) = (&all[n], &seats[n]);
    let other =
        |test: fn(&PlacementReport) -> bool| chosen.is_some_and(|chosen| test(&all[chosen]));
    match mine.why {
        PlacementReason::Pinned => mine.pin == Some(true),
        PlacementReason::Keeps => mine.holds && mine.given <= mine.share,
        PlacementReason::InZone => mine.zone == Some(true) && !mine.holds,
        PlacementReason::Highest => {
            all.iter().all(|o| o.why != PlacementReason::Lower || o.score <= mine.score)
        }
        PlacementReason::Drained => !seat.keeps && mine.given == 0,
        PlacementReason::NoWeight => seat.weight == 0 && mine.given == 0,
        PlacementReason::NoRoom => seat.room == 0 && mine.given == 0,
        PlacementReason::PinnedElsewhere => {
            mine.pin == Some(false) && other(|o| o.pin == Some(true))
        }
        PlacementReason::PinnedBeside => mine.pin == Some(true) && other(|o| o.pin == Some(true)),
        PlacementReason::Surplus => mine.holds && tied > mine.share,
        PlacementReason::Stays => !mine.holds && other(|o| o.holds),
        PlacementReason::Cordoned => !seat.takes,
        PlacementReason::HasShare | PlacementReason::Filled => mine.given == mine.share,
        PlacementReason::OtherZone => mine.zone == Some(false) && other(|o| o.zone == Some(true)),
        PlacementReason::Lower => chosen.is_some_and(|chosen| mine.score <= all[chosen].score),
        PlacementReason::ForeignHighest | PlacementReason::ForeignLower => false,
    }
}

proptest! {
    #[test]
    fn every_sentence_is_true(charges in any_charges(), seats in any_seats()) {
        let plan = plan(&charges, &seats);
        let explainer = Explainer::new(&charges, &seats, &plan, false);
        for at in 0..charges.len() {
            let all = explainer.explain(at);
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
        for foreign in [false, true] {
            let explainer = Explainer::new(&charges, &seats, &plan, foreign);
            let all = (0..charges.len()).flat_map(|at| explainer.explain(at));
            said.extend(all.map(|opinion| opinion.why));
        }
    }
    assert_eq!(said.len(), PlacementReason::ForeignLower as usize + 1, "{said:?}");
}
