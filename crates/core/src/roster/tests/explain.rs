//! What is said of a plan is true of it.

use std::collections::BTreeSet;

use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;

/// Held by a member, or brought there by a pin.
fn tied_to(n: usize, duties: &[RosterDuty], plan: &Plan) -> usize {
    let n = Some(n as u32);
    let tied = |(duty, member): &(&RosterDuty, &Option<u32>)| {
        duty.holder == n || (duty.pin.is_some() && **member == n)
    };
    duties.iter().zip(&plan.holders).filter(tied).count()
}

/// What must hold for each sentence.
fn is_true(
    n: usize,
    all: &[PlacementReport],
    members: &[RosterMember],
    chosen: Option<usize>,
    tied: usize,
) -> bool {
    let (mine, member) = (&all[n], &members[n]);
    let other =
        |test: fn(&PlacementReport) -> bool| chosen.is_some_and(|chosen| test(&all[chosen]));
    match mine.why {
        PlacementReason::Pinned => mine.pin == Some(true),
        PlacementReason::Keeps => mine.holds && mine.given <= mine.share,
        PlacementReason::InZone => mine.zone == Some(true) && !mine.holds,
        PlacementReason::Highest => {
            all.iter().all(|o| o.why != PlacementReason::Lower || o.score <= mine.score)
        }
        PlacementReason::Drained => !member.keeps && mine.given == 0,
        PlacementReason::NoWeight => member.weight == 0 && mine.given == 0,
        PlacementReason::NoRoom => member.room == 0 && mine.given == 0,
        PlacementReason::PinnedElsewhere => {
            mine.pin == Some(false) && other(|o| o.pin == Some(true))
        }
        PlacementReason::PinnedBeside => mine.pin == Some(true) && other(|o| o.pin == Some(true)),
        PlacementReason::Surplus => mine.holds && tied > mine.share,
        PlacementReason::Stays => !mine.holds && other(|o| o.holds),
        PlacementReason::Cordoned => !member.takes,
        PlacementReason::HasShare | PlacementReason::Filled => mine.given == mine.share,
        PlacementReason::OtherZone => mine.zone == Some(false) && other(|o| o.zone == Some(true)),
        PlacementReason::Lower => chosen.is_some_and(|chosen| mine.score <= all[chosen].score),
        PlacementReason::ForeignHighest | PlacementReason::ForeignLower => false,
    }
}

proptest! {
    #[test]
    fn every_sentence_is_true(duties in any_duties(), members in any_members()) {
        let plan = plan(&duties, &members);
        let explainer = Explainer::new(&duties, &members, &plan, false);
        for at in 0..duties.len() {
            let all = explainer.explain(at);
            let chosen = plan.holders[at].map(|member| member as usize);
            let yes: Vec<usize> = (0..all.len()).filter(|n| all[*n].why.is_yes()).collect();
            prop_assert_eq!(&yes, &chosen.into_iter().collect::<Vec<_>>());
            for n in 0..all.len() {
                let tied = tied_to(n, &duties, &plan);
                prop_assert!(
                    is_true(n, &all, &members, chosen, tied),
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
        let duties = any_duties().new_tree(&mut runner).unwrap().current();
        let members = any_members().new_tree(&mut runner).unwrap().current();
        let plan = plan(&duties, &members);
        for foreign in [false, true] {
            let explainer = Explainer::new(&duties, &members, &plan, foreign);
            let all = (0..duties.len()).flat_map(|at| explainer.explain(at));
            said.extend(all.map(|opinion| opinion.why));
        }
    }
    assert_eq!(said.len(), PlacementReason::ForeignLower as usize + 1, "{said:?}");
}
