//! Rendezvous scores: each side is hashed once, the pair is mixed.

use crate::fnv::{Fnv, finalise};
use crate::{DutyId, InstanceId};

/// Hash of a duty. The first byte separates it from that of a member with the same name.
pub(super) fn of_duty(duty: &DutyId) -> u64 {
    Fnv::new().bytes(b"d").bytes(duty.as_str().as_bytes()).mixed()
}

/// Hash of a member.
pub(super) fn of_member(instance: &InstanceId) -> u64 {
    Fnv::new().bytes(b"m").bytes(instance.as_str().as_bytes()).mixed()
}

/// The score of a pair; the highest wins.
pub(super) fn of_pair(duty: u64, member: u64) -> u64 {
    finalise(duty ^ member.rotate_left(32))
}

/// Returns the owner of a duty in a group with foreign instances, as an index into `members`, by
/// the plain rendezvous hashing that they use. It balances worse than [`plan`](super::plan).
pub fn foreign_owner(duty: &DutyId, members: &[InstanceId]) -> Option<usize> {
    // Reversed, because `max_by_key` returns the last of equals and the first is wanted.
    let members = members.iter().enumerate().rev();
    members.max_by_key(|(_, member)| foreign_weight(duty, member)).map(|(n, _)| n)
}

pub(super) fn foreign_weight(duty: &DutyId, member: &InstanceId) -> u64 {
    Fnv::new().bytes(member.as_str().as_bytes()).bytes(duty.as_str().as_bytes()).0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duty(id: &str) -> DutyId {
        DutyId::new(id).unwrap()
    }

    fn member(id: &str) -> InstanceId {
        InstanceId::new(id).unwrap()
    }

    fn published() -> String {
        let mut text = "| duty | member | hash of the duty | hash of the member | score |\n\
            |---|---|---|---|---|\n"
            .to_owned();
        for (d, m) in [
            ("a", "a"),
            ("s-1", "node-a"),
            ("s-1", "node-b"),
            ("s-2", "node-a"),
            ("s-2", "node-b"),
            ("0", "api-7f-1736598400000000000-a1b2c3d4"),
            ("bot/42 %", "api-7f-1736598400000000000-a1b2c3d4"),
            ("größe", "zürich-1"),
        ] {
            let (duty, member) = (of_duty(&duty(d)), of_member(&member(m)));
            let pair = of_pair(duty, member);
            text.push_str(&format!(
                "| `{d}` | `{m}` | `{duty:016x}` | `{member:016x}` | `{pair:016x}` |\n"
            ));
        }
        text
    }

    #[test]
    fn the_page_has_the_vectors() {
        crate::tests::check_page("roster", "score-vectors", &published());
    }

    #[test]
    fn the_finaliser_is_that_of_murmur3() {
        assert_eq!(finalise(0), 0);
        assert_eq!(finalise(1), 0xb456_bcfc_34c2_cb2c);
    }

    #[test]
    fn the_sides_are_not_interchangeable() {
        assert_ne!(of_duty(&duty("a")), of_member(&member("a")));
        let ab = of_pair(of_duty(&duty("a")), of_member(&member("b")));
        assert_ne!(ab, of_pair(of_duty(&duty("b")), of_member(&member("a"))));
        // Also when both sides would hash alike.
        assert_ne!(of_pair(1, 2), of_pair(2, 1));
    }

    /// Names that differ in their last bytes spread evenly; FNV alone gives one member most.
    #[test]
    fn scores_spread_similar_names() {
        let members: Vec<u64> = (0..10).map(|n| of_member(&member(&format!("node-{n}")))).collect();
        let mut wins = [0; 10];
        for n in 0..10_000 {
            let duty = of_duty(&duty(&format!("shard-{n}")));
            let best = (0..10).max_by_key(|m| of_pair(duty, members[*m])).unwrap();
            wins[best] += 1;
        }
        // Ten standard deviations are 300.
        assert!(wins.iter().all(|wins| (700..1_300).contains(wins)), "{wins:?}");
    }

    #[test]
    fn foreign_owners_are_those_of_plain_fnv() {
        let members = ["node-a", "node-b", "node-c"].map(member);
        let s1 = duty("s-1");
        let weights = [0x129d_df0f_53e2_abd2, 0x2e59_a71a_c555_8275, 0x9f46_7321_4da8_b4e8];
        assert_eq!(members.each_ref().map(|member| foreign_weight(&s1, member)), weights);
        assert_eq!(foreign_owner(&s1, &members), Some(2));
        assert_eq!(foreign_owner(&s1, &members[..2]), Some(1));
        assert_eq!(foreign_owner(&s1, &[]), None);
        // What the page warns of.
        assert!((0..10).all(|n| foreign_owner(&duty(&format!("s-{n}")), &members) == Some(2)));
        // No separator: both read "abc", and the first of equals wins.
        assert_eq!(
            foreign_weight(&duty("bc"), &member("a")),
            foreign_weight(&duty("c"), &member("ab"))
        );
        assert_eq!(foreign_owner(&s1, &[member("x"), member("x")]), Some(0));
    }
}
