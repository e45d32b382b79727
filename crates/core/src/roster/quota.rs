//! Quota of each member: Webster's method (Sainte-Lague) within bounds.
//!
//! Only a divisor method guarantees that a leaving member or a new duty never shrinks the share of
//! another member.

use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QuotaBounds {
    /// Weight relative to the others.
    pub(super) weight: u32,
    /// Lower bound.
    pub(super) least: usize,
    /// Upper bound; not below `least`.
    pub(super) most: usize,
    /// Number of duties it holds; breaks ties.
    pub(super) has: usize,
}

/// Divides `total`: each duty goes to the highest `weight / (2 * given + 1)`. When every member has
/// its upper bound, the rest is left over. The lower bounds must fit into `total`.
pub(super) fn share(total: usize, claims: &[QuotaBounds]) -> Vec<usize> {
    let mut given = head_start(total, claims);
    let mut left = total - given.iter().sum::<usize>();
    while left > 0 {
        let open = (0..claims.len()).filter(|n| given[*n] < claims[*n].most);
        let Some(next) = open.max_by(|a, b| compare(claims, &given, *a, *b)) else { break };
        given[next] += 1;
        left -= 1;
    }
    given
}

/// Orders members by their claim to the next duty. Ties go to a member that already holds one more,
/// so that nothing moves, then to the first in order.
fn compare(claims: &[QuotaBounds], given: &[usize], a: usize, b: usize) -> Ordering {
    let steps = |n: usize| 2 * given[n] as u128 + 1;
    let times = |n: usize, steps: u128| u128::from(claims[n].weight) * steps;
    let keeps = |n: usize| claims[n].has > given[n];
    times(a, steps(b)).cmp(&times(b, steps(a))).then(keeps(a).cmp(&keeps(b))).then(b.cmp(&a))
}

/// Skips the bulk of the steps: gives out everything above a priority level, chosen so that fewer
/// duties than members remain or every member has its upper bound.
fn head_start(total: usize, claims: &[QuotaBounds]) -> Vec<usize> {
    let weights: u128 = claims.iter().map(|claim| u128::from(claim.weight)).sum();
    // A member has got all with `2 * given + 1 < weight * level / weights`.
    let at = |level: u128| -> Vec<usize> {
        let given = |claim: &QuotaBounds| {
            let reached = (u128::from(claim.weight) * level).div_ceil(weights.max(1)) / 2;
            usize::try_from(reached).unwrap_or(usize::MAX).clamp(claim.least, claim.most)
        };
        claims.iter().map(given).collect()
    };
    let fits = |given: &[usize]| {
        let sum = given.iter().try_fold(0, |sum: usize, more| sum.checked_add(*more));
        sum.is_some_and(|sum| sum <= total)
    };
    // The sum grows with the level, and at the upper end every weight above zero asks for all.
    let (mut low, mut high) = (0, (2 * total as u128 + 2) * weights.max(1));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match fits(&at(middle)) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    at(low)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, one step at a time.
    fn plainly(total: usize, claims: &[QuotaBounds]) -> Vec<usize> {
        let mut given: Vec<usize> = claims.iter().map(|claim| claim.least).collect();
        while given.iter().sum::<usize>() < total {
            let open = (0..claims.len()).filter(|n| given[*n] < claims[*n].most);
            let Some(next) = open.max_by(|a, b| compare(claims, &given, *a, *b)) else { break };
            given[next] += 1;
        }
        given
    }

    fn claims() -> impl Strategy<Value = Vec<QuotaBounds>> {
        let weight = prop_oneof![Just(1), 1..6_u32, Just(u32::MAX), any::<u32>()];
        let most = prop_oneof![Just(usize::MAX), 0..40_usize];
        let claim =
            (weight, 0..4_usize, most, 0..20_usize).prop_map(|(weight, least, most, has)| {
                let most = if weight == 0 { 0 } else { most };
                QuotaBounds { weight, least: least.min(most), most, has }
            });
        proptest::collection::vec(claim, 0..9)
    }

    proptest! {
        #[test]
        fn the_head_start_changes_nothing(claims in claims(), more in 0..200_usize) {
            let total = more + claims.iter().map(|claim| claim.least).sum::<usize>();
            prop_assert_eq!(share(total, &claims), plainly(total, &claims));
        }

        #[test]
        fn the_head_start_leaves_less_than_one_each(claims in claims(), more in 0..9_999_usize) {
            let total = more + claims.iter().map(|claim| claim.least).sum::<usize>();
            let start = head_start(total, &claims);
            let left = total - start.iter().sum::<usize>();
            let full = start.iter().zip(&claims).all(|(start, claim)| *start == claim.most);
            prop_assert!(full || left < claims.len(), "{} left", left);
        }
    }
}
