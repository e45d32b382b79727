use super::*;

proptest! {
    #[test]
    fn equal_members_differ_by_one_at_most(mut charges in any_charges(), m in 1..9_usize) {
        charges.iter_mut().for_each(|charge| charge.pin = None);
        let plan = plan(&charges, &seats(m));
        let counts = counts(&plan);
        prop_assert_eq!(&counts, &plan.quotas);
        prop_assert_eq!(counts.iter().filter(|n| **n == charges.len() / m + 1).count(),
            charges.len() % m);
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
    }

    /// Every duty is planned while there is room, nobody has more than its room or its share, who
    /// drains has nothing, who is cordoned not more than before.
    #[test]
    fn all_is_planned_that_has_room(charges in any_charges(), seats in any_seats()) {
        let plan = plan(&charges, &seats);
        let counts = counts(&plan);
        prop_assert_eq!(plan.seats.len(), charges.len());
        prop_assert_eq!(&counts, &plan.quotas);
        let mut room = 0_usize;
        for (n, seat) in seats.iter().enumerate() {
            prop_assert!(counts[n] <= most(n, seat, &charges), "seat {}", n);
            room = room.saturating_add(most(n, seat, &charges));
        }
        let none = charges.iter().all(|charge| charge.pin.is_none());
        let planned = plan.seats.iter().flatten().count();
        prop_assert!(planned <= room.min(charges.len()));
        if none || seats.iter().all(|seat| seat.takes) {
            // Only a pin takes something from the room of a member that is cordoned.
            prop_assert_eq!(planned, room.min(charges.len()));
        }
        // And nobody who could take one has a place left while a duty has none.
        if planned < charges.len() {
            for (n, seat) in seats.iter().enumerate().filter(|(_, seat)| seat.takes) {
                prop_assert_eq!(counts[n], most(n, seat, &charges));
            }
        }
    }

    #[test]
    fn a_stable_group_moves_nothing(charges in any_charges(), seats in any_seats()) {
        let mut charges = charges;
        let first = plan(&charges, &seats);
        carry_out(&mut charges, &first);
        prop_assert_eq!(plan(&charges, &seats), first);
    }

    /// Nothing moves but from a seat above its share to one below it.
    #[test]
    fn nothing_is_swapped(charges in any_charges(), seats in any_seats()) {
        let mut charges = charges;
        charges.iter_mut().for_each(|charge| charge.pin = None);
        let plan = plan(&charges, &seats);
        let held = |seat: u32| charges.iter().filter(|charge| charge.holder == Some(seat)).count();
        for n in moved(&charges, &plan) {
            if let Some(from) = charges[n].holder.filter(|from| (*from as usize) < seats.len()) {
                prop_assert!(held(from) > plan.quotas[from as usize]);
            }
        }
        for (n, to) in plan.seats.iter().enumerate() {
            if let Some(to) = to.filter(|to| charges[n].holder != Some(*to)) {
                prop_assert!(held(to) < plan.quotas[to as usize]);
            }
        }
    }

    #[test]
    fn a_join_moves_no_more_than_its_part(d in 0..80_usize, m in 1..9_usize, new in 0..9_usize) {
        let all = seats(m + 1);
        let mut old = all.clone();
        old.remove(new.min(m));
        let mut charges = settled(charges(d), &old);
        for holder in charges.iter_mut().filter_map(|charge| charge.holder.as_mut()) {
            *holder += u32::from(*holder as usize >= new.min(m));
        }
        let plan = plan(&charges, &all);
        let moved = moved(&charges, &plan);
        prop_assert!(moved.len() <= d.div_ceil(m + 1), "{} moved", moved.len());
        prop_assert!(moved.iter().all(|n| plan.seats[*n] == Some(new.min(m) as u32)));
    }

    /// With any weights, zones, room, cordoned and draining members.
    #[test]
    fn a_leave_moves_only_what_the_leaver_held(
        charges in any_charges(),
        seats in any_seats(),
        gone in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!seats.is_empty());
        let mut charges = charges;
        charges.iter_mut().for_each(|charge| charge.pin = None);
        let charges = settled(charges, &seats);
        let gone = gone.index(seats.len());
        let mut rest = seats;
        rest.remove(gone);
        let charges = without(&charges, gone as u32);
        prop_assert_eq!(moved(&charges, &plan(&charges, &rest)), []);
    }

    /// A new duty moves no other.
    #[test]
    fn a_new_duty_moves_no_other(charges in any_charges(), seats in any_seats()) {
        let mut charges = charges;
        charges.iter_mut().for_each(|charge| charge.pin = None);
        let mut charges = settled(charges, &seats);
        charges.push(charge(999));
        prop_assert_eq!(moved(&charges, &plan(&charges, &seats)), []);
    }

    /// The distance from the exact share is at most 1/2 + (m - 2) / 2 times the seat's part of all
    /// weights: within one duty up to three members, and for everybody whose part is small.
    #[test]
    fn weights_are_respected(
        weights in vec(prop_oneof![1..10_u32, 1..1_000_u32], 1..12),
        d in 0..300_usize,
    ) {
        let plan = plan(&charges(d), &weighted(&weights));
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
