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
    assert_eq!(said.len(), Why::ForeignLower as usize + 1, "{said:?}");
}
