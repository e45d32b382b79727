use super::*;

proptest! {
    #[test]
    fn equal_members_differ_by_one_at_most(mut duties in any_duties(), m in 1..9_usize) {
        duties.iter_mut().for_each(|duty| duty.pin = None);
        let plan = plan(&duties, &members(m));
        let counts = counts(&plan);
        prop_assert_eq!(&counts, &plan.quotas);
        prop_assert_eq!(counts.iter().filter(|n| **n == duties.len() / m + 1).count(),
            duties.len() % m);
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
    }

    /// Every duty is planned while there is room, nobody has more than its room or its share, who
    /// drains has nothing, who is cordoned not more than before.
    #[test]
    fn all_is_planned_that_has_room(duties in any_duties(), members in any_members()) {
        let plan = plan(&duties, &members);
        let counts = counts(&plan);
        prop_assert_eq!(plan.holders.len(), duties.len());
        prop_assert_eq!(&counts, &plan.quotas);
        let mut room = 0_usize;
        for (n, member) in members.iter().enumerate() {
            prop_assert!(counts[n] <= most(n, member, &duties), "member {}", n);
            room = room.saturating_add(most(n, member, &duties));
        }
        let none = duties.iter().all(|duty| duty.pin.is_none());
        let planned = plan.holders.iter().flatten().count();
        prop_assert!(planned <= room.min(duties.len()));
        if none || members.iter().all(|member| member.takes) {
            // Only a pin takes something from the room of a member that is cordoned.
            prop_assert_eq!(planned, room.min(duties.len()));
        }
        // And nobody who could take one has a place left while a duty has none.
        if planned < duties.len() {
            for (n, member) in members.iter().enumerate().filter(|(_, member)| member.takes) {
                prop_assert_eq!(counts[n], most(n, member, &duties));
            }
        }
    }

    #[test]
    fn a_stable_group_moves_nothing(duties in any_duties(), members in any_members()) {
        let mut duties = duties;
        let first = plan(&duties, &members);
        carry_out(&mut duties, &first);
        prop_assert_eq!(plan(&duties, &members), first);
    }

    /// Nothing moves but from a member above its share to one below it.
    #[test]
    fn nothing_is_swapped(duties in any_duties(), members in any_members()) {
        let mut duties = duties;
        duties.iter_mut().for_each(|duty| duty.pin = None);
        let plan = plan(&duties, &members);
        let held = |member: u32| duties.iter().filter(|duty| duty.holder == Some(member)).count();
        for n in moved(&duties, &plan) {
            if let Some(from) = duties[n].holder.filter(|from| (*from as usize) < members.len()) {
                prop_assert!(held(from) > plan.quotas[from as usize]);
            }
        }
        for (n, to) in plan.holders.iter().enumerate() {
            if let Some(to) = to.filter(|to| duties[n].holder != Some(*to)) {
                prop_assert!(held(to) < plan.quotas[to as usize]);
            }
        }
    }

    #[test]
    fn a_join_moves_no_more_than_its_part(d in 0..80_usize, m in 1..9_usize, new in 0..9_usize) {
        let all = members(m + 1);
        let mut old = all.clone();
        old.remove(new.min(m));
        let mut duties = settled(duties(d), &old);
        for holder in duties.iter_mut().filter_map(|duty| duty.holder.as_mut()) {
            *holder += u32::from(*holder as usize >= new.min(m));
        }
        let plan = plan(&duties, &all);
        let moved = moved(&duties, &plan);
        prop_assert!(moved.len() <= d.div_ceil(m + 1), "{} moved", moved.len());
        prop_assert!(moved.iter().all(|n| plan.holders[*n] == Some(new.min(m) as u32)));
    }

    /// With any weights, zones, room, cordoned and draining members.
    #[test]
    fn a_leave_moves_only_what_the_leaver_held(
        duties in any_duties(),
        members in any_members(),
        gone in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!members.is_empty());
        let mut duties = duties;
        duties.iter_mut().for_each(|duty| duty.pin = None);
        let duties = settled(duties, &members);
        let gone = gone.index(members.len());
        let mut rest = members;
        rest.remove(gone);
        let duties = without(&duties, gone as u32);
        prop_assert_eq!(moved(&duties, &plan(&duties, &rest)), []);
    }

    /// A new duty moves no other.
    #[test]
    fn a_new_duty_moves_no_other(duties in any_duties(), members in any_members()) {
        let mut duties = duties;
        duties.iter_mut().for_each(|duty| duty.pin = None);
        let mut duties = settled(duties, &members);
        duties.push(duty(999));
        prop_assert_eq!(moved(&duties, &plan(&duties, &members)), []);
    }

    /// The distance from the exact share is at most 1/2 + (m - 2) / 2 times the member's part of
    /// all weights: less than one duty with up to three members, and for members of small weight.
    #[test]
    fn weights_are_respected(
        weights in vec(prop_oneof![1..10_u32, 1..1_000_u32], 1..12),
        d in 0..300_usize,
    ) {
        let plan = plan(&duties(d), &weighted(&weights));
        let all: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let others = (weights.len() as u64).saturating_sub(2);
        for (quota, weight) in plan.quotas.iter().zip(&weights) {
            let weight = u64::from(*weight);
            // All times the sum of the weights, twice.
            let off = (*quota as u64 * all).abs_diff(d as u64 * weight) * 2;
            prop_assert!(off <= all + others * weight, "{} of {}", quota, d);
            if weights.len() <= 3 || weight * others <= all {
                prop_assert!(off <= 2 * all);
            }
        }
    }
}
