//! The snapshot that explains placements is the one that members plan with.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::*;
use super::bench::*;
use crate::roster::Pin;
use crate::store::Claimed;
use crate::{Nonce, Target};

/// A member claims exactly the duties that the snapshot assigns to it, whatever operators ordered.
#[test]
fn a_member_does_as_the_picture_says() {
    let duty = |n: usize| DutyId::new(format!("d{n:02}")).unwrap();
    let all: Vec<DutyId> = (0..12).map(duty).collect();
    let mut bench = Bench::new();
    bench.group.pins.insert(duty(3), Pin::Instance(instance("me")));
    bench.group.pins.insert(duty(4), Pin::Instance(instance("b")));
    bench.group.paused.insert(duty(5));
    bench.group.weights.insert(instance("me"), 2);
    bench.group.cordoned.insert(instance("a"));
    let names: Vec<&str> = all.iter().map(DutyId::as_str).collect();
    bench.list(&names);
    bench.join();
    // One is held by an instance that is not a member: it is not planned.
    let held = [("d00", "a"), ("d01", "b"), ("d02", "gone")];
    let of = |name: &str| held.iter().find(|(duty, _)| *duty == name).map(|(_, of)| (*of, 1));
    let holders: Vec<_> = names.iter().map(|name| (*name, of(name))).collect();
    bench.see(&["a", "b"], &holders);

    let members = ["a", "b", "me"].map(|name| member(name, 1, 0));
    let held = held.map(|(duty, of)| (DutyId::new(duty).unwrap(), instance(of)));
    let held: BTreeMap<_, _> = held.into();
    let listing = Listing::new(all.iter().cloned().map(Target::new));
    let picture = GroupSnapshot::new(&members, &held, &bench.group, &listing, None);
    let mine = |duty: &&DutyId| {
        picture.owner(duty).is_some_and(|member| member.instance == instance("me"))
    };
    let mine: Vec<DutyId> = all.iter().filter(mine).cloned().collect();
    let Some((_, StoreRequest::Claim { wants, .. })) = bench.asked(is_claim) else {
        unreachable!()
    };
    let wanted: Vec<DutyId> = wants.into_iter().map(|want| want.duty.id).collect();
    assert_eq!(wanted, mine);
    assert!(mine.contains(&duty(3)) && mine.len() > 2, "{mine:?}");
    assert!(!picture.members[0].takes && picture.members[2].weight == 2, "as operators want it");
    assert!([2, 5].iter().all(|n| picture.explain(&duty(*n)).is_none()));
    let why = picture.explain(&duty(4)).unwrap();
    assert_eq!(
        why.iter().map(|opinion| opinion.why.is_yes()).collect::<Vec<_>>(),
        [false, true, false]
    );
}

/// A pending claim counts as a hold: a duty that becomes free meanwhile is not claimed as well.
#[test]
fn a_claim_on_its_way_counts_as_a_hold() {
    let first_wish = |held: &[(&str, Option<(&str, u64)>)]| {
        let mut bench = Bench::new();
        bench.list(&["a", "b"]);
        bench.join();
        bench.see(&["other"], held);
        let (ticket, request) = bench.asked(is_claim).unwrap();
        let StoreRequest::Claim { wants, .. } = request else { unreachable!() };
        (bench, ticket, wants[0].duty.id.to_string())
    };
    let (_, _, best) = first_wish(&[("a", None), ("b", None)]);
    let other = Some(("other", 1));
    let held = if best == "a" { [("a", other), ("b", None)] } else { [("a", None), ("b", other)] };
    let (mut bench, ticket, wish) = first_wish(&held);
    assert_ne!(wish, best);
    bench.look(&["other"], &[("a", None), ("b", None)]);
    let hold = bench.hold(&wish, 1);
    bench.step(EngineEvent::Answered(
        ticket,
        StoreResponse::Claim(Ok(vec![Claimed::Granted(hold)])),
    ));
    assert!(bench.asked(is_claim).is_none(), "one for each");
}

/// Members that take only one duty plan among themselves; a foreign member changes the rule.
#[test]
fn members_of_one_duty_and_foreign_ones_are_told_apart() {
    let only = |name: &str, only: &str| {
        let only = Some(DutyId::new(only).unwrap());
        let note = MemberStatus { only, ..MemberStatus::with_room(1) }.note().unwrap();
        crate::store::Member { note, ..member(name, 1, 0) }
    };
    let members = [only("a", "x"), only("b", "y"), only("c", "x")];
    let x = DutyId::new("x").unwrap();
    let listing = Listing::new([Target::new(x.clone())]);
    let picture =
        GroupSnapshot::new(&members, &BTreeMap::new(), &GroupConfig::default(), &listing, Some(&x));
    let members: Vec<&str> =
        picture.members.iter().map(|member| member.instance.as_str()).collect();
    assert_eq!((members, picture.foreign), (vec!["a", "c"], false));

    let mut members = ["a", "b", "c"].map(|name| member(name, 1, 0));
    members[1].nonce = None::<Nonce>;
    let picture =
        GroupSnapshot::new(&members, &BTreeMap::new(), &GroupConfig::default(), &listing, None);
    assert!(picture.foreign);
    let names: Vec<_> = members.iter().map(|member| member.instance.clone()).collect();
    let owner = crate::roster::foreign_owner(&x, &names).map(|n| &names[n]);
    assert_eq!(picture.owner(&x).map(|member| &member.instance), owner);
    let yes = picture.explain(&x).unwrap().iter().position(|opinion| opinion.why.is_yes());
    assert_eq!(yes.map(|n| &names[n]), owner);
}

/// Possible changes by an operator in a group of four members.
fn changes() -> impl Strategy<Value = GroupConfig> {
    let weights = vec((0..4_usize, 0..5_u32), 0..3);
    let drained = vec(0..4_usize, 0..3);
    let pins = vec((0..30_usize, 0..4_usize), 0..4);
    (weights, drained, pins).prop_map(|(weights, drained, pins)| GroupConfig {
        weights: weights.into_iter().map(|(n, weight)| (node(n), weight)).collect(),
        drained: drained.into_iter().map(|n| (node(n), DrainMode::HandOver)).collect(),
        pins: pins.into_iter().map(|(d, n)| (numbered(d), Pin::Instance(node(n)))).collect(),
        ..GroupConfig::default()
    })
}

fn node(n: usize) -> InstanceId {
    instance(&format!("node-{n}"))
}

fn numbered(n: usize) -> DutyId {
    DutyId::new(format!("d{n:02}")).unwrap()
}

fn owners(picture: &GroupSnapshot) -> BTreeMap<DutyId, InstanceId> {
    let duties = picture.duties.iter().map(|duty| &duty.duty);
    let owner = |duty: &DutyId| Some((duty.clone(), picture.owner(duty)?.instance.clone()));
    duties.filter_map(owner).collect()
}

proptest! {
    /// The plan for a change is the state after everybody has followed it, in whatever order the
    /// duties move.
    #[test]
    fn a_change_ends_as_it_was_planned(
        group in changes(),
        duties in 1..30_usize,
        held in vec(0..5_usize, 30),
        order in vec(any::<prop::sample::Index>(), 100),
    ) {
        let members: Vec<_> = (0..4).map(|n| member(&format!("node-{n}"), 1, 0)).collect();
        let listing = Listing::new((0..duties).map(|n| Target::new(numbered(n))));
        let plan = |held: &BTreeMap<DutyId, InstanceId>| {
            GroupSnapshot::new(&members, held, &group, &listing, None)
        };
        let held = (0..duties).zip(held).filter(|(_, n)| *n < 4);
        let mut held: BTreeMap<_, _> = held.map(|(d, n)| (numbered(d), node(n))).collect();
        let planned = owners(&plan(&held));
        for pick in order {
            let next = owners(&plan(&held));
            let moves: Vec<_> = next.iter().filter(|(d, to)| held.get(*d) != Some(to)).collect();
            if moves.is_empty() {
                break;
            }
            let (duty, to) = moves[pick.index(moves.len())];
            held.insert(duty.clone(), to.clone());
        }
        prop_assert_eq!(owners(&plan(&held)), planned);
    }
}
