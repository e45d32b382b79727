//! Handover: one holder at a time, and its successor.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Code, Document, HoldLost, MembershipEvent, Reason, Ttl};

use super::player::*;

#[tokio::test]
async fn one_holds_the_other_waits_and_takes_over_when_it_leaves() {
    everywhere(|place| async move {
        let group = group();
        let mut first = join(&place, &group, standby()).start().await.unwrap();
        let guard = assigned(&mut first).await;
        let mut second = join(&place, &group, standby()).start().await.unwrap();
        let holder = next(&mut second, "standby", |event| match event {
            MembershipEvent::Standby { holder } => Some(holder),
            MembershipEvent::Assigned(guard) => panic!("{}: two holders: {guard:?}", place.name),
            _ => None,
        });
        assert_eq!(holder.await.as_ref(), Some(first.instance()), "{}", place.name);

        first.leaver().leave();
        next(&mut first, "the wish to stop", |event| {
            matches!(event, MembershipEvent::Stopping { .. }).then_some(())
        })
        .await;
        assert!(guard.draining() && guard.check().is_ok(), "work may come to its end");
        let (epoch, old) = (guard.epoch(), guard.clone());
        old.finished(tenure::WorkOutcome::Asked);
        ended(&mut first).await;
        let guard = assigned(&mut second).await;
        assert!(guard.epoch() > epoch, "{}", place.name);
        assert!(guard.check().is_ok());
        assert_eq!(old.check(), Err(HoldLost::Revoked));
        drop(guard);
        second.leave().await.unwrap();
    })
    .await;
}

/// The waiting member's clock moves too little for another look without a hint.
#[tokio::test]
async fn who_waits_learns_from_the_store_that_the_duty_is_free() {
    let (place, group) = (Place::memory(), group());
    let hour = Ttl::new(Duration::from_secs(3600)).unwrap();
    let mut first = join_for(&place, &group, hour, standby()).start().await.unwrap();
    let guard = assigned(&mut first).await;
    let clock = Arc::new(Dial::default());
    let second = join_by(clock.clone(), &place, &group, hour, standby()).start();
    let mut second = second.await.unwrap();
    next(&mut second, "standby", |event| {
        matches!(event, MembershipEvent::Standby { .. }).then_some(())
    })
    .await;
    clock.stop();
    first.leaver().leave();
    soon("the wish to stop", guard.stopping()).await;
    drop(guard);
    ended(&mut first).await;
    // A hint causes a look a moment later; without one the next look comes after a second.
    for _ in 0..20 {
        clock.advance(Duration::from_millis(20));
        let next = tokio::time::timeout(Duration::from_millis(500), second.next()).await;
        if let Ok(Some(MembershipEvent::Assigned(_))) = next {
            return;
        }
    }
    panic!("nobody told the second one");
}

#[tokio::test]
async fn dropping_a_membership_gives_everything_back_in_the_background() {
    everywhere(|place| async move {
        let group = group();
        let mut first = join(&place, &group, standby()).start().await.unwrap();
        let guard = assigned(&mut first).await;
        let mut second = join(&place, &group, standby()).start().await.unwrap();
        drop(first);
        soon("the wish to stop", guard.stopping()).await;
        let epoch = guard.epoch();
        drop(guard);
        assert!(assigned(&mut second).await.epoch() > epoch, "{}", place.name);
    })
    .await;
}

#[tokio::test]
async fn two_members_share_the_shards() {
    everywhere(|place| async move {
        let group = group();
        let (one, two) = (Witness::new(), Witness::new());
        let start = |witness: &Arc<Witness>| {
            let join = join(&place, &group, tenure::Duties::Shards(4));
            join.observer(witness.clone()).start()
        };
        let first = start(&one).await.unwrap();
        let work = |guard: tenure::Guard| async move {
            guard.stopping().await;
            Ok::<_, std::convert::Infallible>(())
        };
        let leaver = first.leaver();
        let first = tokio::spawn(first.run(work));
        one.holds(&["0", "1", "2", "3"]).await;
        let second = start(&two).await.unwrap();
        let second = tokio::spawn(second.run(work));
        let halves = |held: &Vec<tenure::observe::HeldDuty>| held.len() == 2;
        for witness in [&one, &two] {
            let held = async { witness.held.subscribe().wait_for(halves).await.map(|_| ()) };
            soon("a half", held).await.unwrap();
        }
        leaver.leave();
        soon("the first one's end", first).await.unwrap().unwrap();
        two.holds(&["0", "1", "2", "3"]).await;
        second.abort();
    })
    .await;
}

#[tokio::test]
async fn a_checkpoint_is_handed_over_and_refused_under_an_old_hold() {
    everywhere(|place| async move {
        let group = group();
        let mut first = join(&place, &group, standby()).start().await.unwrap();
        let guard = assigned(&mut first).await;
        assert_eq!(guard.load().await.unwrap(), None);
        for count in 1..=3_u64 {
            let version = guard.commit(Document::new(count.to_string()).unwrap()).await.unwrap();
            assert_eq!(version.get(), count);
        }
        // An operator evicts the instance; its guard learns that from the refusal.
        let why = Reason::new("test").unwrap();
        let store = place.store().await;
        let now = tenure::store::Evict::Now;
        store.evict(&group, first.instance(), now, &why).await.unwrap();
        let refused = guard.commit(Document::new(*b"4").unwrap()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Fenced, "{}: {refused}", place.name);
        assert_eq!(guard.check(), Err(HoldLost::Revoked));
        let end = next(&mut first, "the end", |event| match event {
            MembershipEvent::Ended(end) => Some(end),
            _ => None,
        });
        assert_eq!(end.await.unwrap_err().code, Code::EvictedInstance, "{}", place.name);

        let mut second = join(&place, &group, standby()).start().await.unwrap();
        let guard = assigned(&mut second).await;
        let found = guard.load().await.unwrap().unwrap();
        assert_eq!((found.document.as_bytes(), found.version.get()), (&b"3"[..], 3));
        drop(guard);
        second.leave().await.unwrap();
    })
    .await;
}

/// The store would accept the commit, because the hold is still valid there.
#[tokio::test]
async fn a_lost_guard_commits_nothing() {
    everywhere(|place| async move {
        let mut membership = join(&place, &group(), standby()).start().await.unwrap();
        let guard = assigned(&mut membership).await;
        guard.commit(Document::new(*b"1").unwrap()).await.unwrap();
        guard.fenced(guard.epoch());
        let refused = guard.commit(Document::new(*b"2").unwrap()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Fenced, "{}: {refused}", place.name);
        let found = guard.load().await.unwrap().unwrap();
        assert_eq!(found.document.as_bytes(), b"1", "{}", place.name);
        drop(guard);
        membership.leave().await.unwrap();
    })
    .await;
}
