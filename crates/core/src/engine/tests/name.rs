//! Names of members.

use super::super::*;
use super::bench::*;
use crate::Mark;
use crate::store::{HoldFate, KeptAlive, Member};

/// A default name that another member has gets a number: when the member joins, and when both have
/// joined at once. The number goes with the other member.
#[test]
fn a_default_name_is_not_the_one_of_another_member() {
    let mut bench = Bench::new();
    bench.engine.settings.name = Some(Label::new("web").unwrap());
    bench.engine.settings.numbered = true;
    let named = |instance: &str, name: &str| {
        let name = Some(Label::new(name).unwrap());
        let status = MemberStatus { name, ..MemberStatus::with_room(9) };
        Member { note: status.note().unwrap(), ..member(instance, 9, 0) }
    };
    let view = |bench: &Bench, members: &[Member]| {
        let (members, document) = (members.to_vec(), bench.document());
        StoreResponse::Look(Ok(GroupView { members, document, holders: Some(Vec::new()) }))
    };
    bench.list(&["d"]);
    bench.step(EngineEvent::Tick);
    // Its instance id is `me`, which is smaller: it leaves the name to the member that is there.
    let look = view(&bench, &[named("other", "web")]);
    bench.answer(is_look, look);
    let (_, StoreRequest::Open(open)) = bench.asked.last().unwrap() else { unreachable!() };
    let published = |note: &Note| MemberStatus::read(note).unwrap().name.unwrap().to_string();
    assert_eq!(published(&open.note), "web_2");
    bench.open();
    // The keep-alive that follows a look publishes the name of now.
    let mut look = |members: &[Member], expected: &str| {
        bench.step(EngineEvent::Hint);
        bench.now += 20;
        bench.step(EngineEvent::Tick);
        let response = view(&bench, members);
        bench.answer(is_look, response);
        let (ticket, request) = bench.asked(is_keep).unwrap();
        let StoreRequest::KeepAlive { note, holds, .. } = request else { unreachable!() };
        assert_eq!(note.map(|note| published(&note)).as_deref(), Some(expected));
        let kept = KeptAlive::Kept { mark: Mark(0), holds: vec![HoldFate::Kept; holds.len()] };
        bench.step(EngineEvent::Answered(ticket, StoreResponse::KeepAlive(Ok(kept))));
    };
    look(&[], "web");
    look(&[named("a", "web")], "web_2");
    look(&[named("a", "db")], "web");
}
