//! Contract 5 to 9: holds and epochs.

use std::slice;

use tenure_core::store::{
    ClaimRequest, Claimed, Closed, Committed, HoldFate, KeptAlive, OpenSession, Released,
};
use tenure_core::{Code, Epoch, Hold, Mark, StoreError};

use super::kit::{Kit, doc, granted, is_held, reason, version};

super::cases! { "hold":
    a_plain_life,
    a_first_grant_has_an_epoch_above_zero,
    dense_epochs_count_from_one,
    a_held_duty_names_its_holder,
    claiming_again_is_the_same_hold,
    the_epoch_grows_after_a_release,
    the_epoch_grows_after_an_expiry,
    the_epoch_grows_after_a_close,
    the_epoch_grows_when_the_same_instance_returns,
    a_floor_raises_the_grant,
    a_floor_below_changes_nothing,
    the_checkpoint_s_epoch_is_a_floor,
    a_floor_at_the_end_of_the_range_is_refused_whole,
    the_last_epoch_can_be_held_and_asked_for_again,
    release_by_another_is_refused,
    release_is_idempotent,
    release_of_an_older_epoch_frees_nothing,
    release_of_an_expired_hold_changes_nothing,
    an_expired_hold_cannot_be_renewed,
    a_hold_of_an_ended_session_is_not_inherited,
    keep_alive_tells_the_fate_of_each_hold,
    a_stale_mark_never_hides_a_loss,
    a_hold_that_was_never_granted_is_lost,
    a_hold_with_another_epoch_is_lost,
    claiming_without_a_session_gives_nothing,
    claiming_with_an_expired_session_gives_nothing,
    closing_frees_every_hold,
    a_batch_answers_in_order,
    empty_batches_are_answered,
    ten_thousand_holds_live_on_by_one_call,
    holders_lists_held_and_free_duties,
    duties_of_two_groups_are_apart,
    an_expired_holder_does_not_block_another_duty,
}

/// One member uses every call once. No mutant of a store makes this fail: each breaks a rule, not
/// the store.
async fn a_plain_life(kit: Kit) {
    let session = kit.join("a").await;
    let hold = kit.hold(&session, "d").await;
    assert_eq!(kit.fates(&session, slice::from_ref(&hold)).await, [HoldFate::Kept]);
    assert_eq!(kit.commit(&session, &hold, 0, "one").await, Committed::Saved(version(1)));
    assert_eq!(kit.load(&hold.duty).await.unwrap().document, doc("one"));
    assert_eq!(kit.release(&session, &hold).await, Released::Freed);
    let closed = kit.store.close_session(&session, &reason("done")).await.unwrap();
    assert_eq!(closed, Closed::Closed);
}

async fn a_first_grant_has_an_epoch_above_zero(kit: Kit) {
    let session = kit.join("a").await;
    let hold = kit.hold(&session, "d").await;
    assert!(hold.epoch > Epoch::ZERO);
    assert!(hold.is_of(&session));
    assert_eq!(hold.duty, kit.duty("d"));
}

async fn dense_epochs_count_from_one(kit: Kit) {
    if !kit.store.abilities().dense_epochs {
        return growing_epochs(kit).await;
    }
    let session = kit.join("a").await;
    for expected in 1..=3 {
        let hold = kit.hold(&session, "d").await;
        assert_eq!(hold.epoch.get(), expected);
        kit.release(&session, &hold).await;
    }
}

/// Rules for a store whose epochs may have gaps.
async fn growing_epochs(kit: Kit) {
    let session = kit.join("a").await;
    let mut last = Epoch::ZERO;
    for _ in 1..=3 {
        let hold = kit.hold(&session, "d").await;
        assert!(hold.epoch > last);
        last = hold.epoch;
        kit.release(&session, &hold).await;
    }
}

async fn a_held_duty_names_its_holder(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    kit.hold(&a, "d").await;
    let claimed = kit.claim(&b, &[kit.duty("d")]).await.remove(0);
    let Claimed::HeldBy(Some(holder)) = claimed else { panic!("{claimed:?}") };
    assert_eq!(holder.instance, a.instance);
    assert!(holder.remaining <= a.ttl.get());
}

async fn claiming_again_is_the_same_hold(kit: Kit) {
    let session = kit.join("a").await;
    let hold = kit.hold(&session, "d").await;
    let again = kit.claim(&session, &[kit.duty("d")]).await.remove(0);
    let Claimed::Already(same) = again else { panic!("{again:?}") };
    assert_eq!((same.epoch, same.nonce), (hold.epoch, hold.nonce));
    assert_eq!(kit.fates(&session, &[same]).await, [HoldFate::Kept]);
}

async fn the_epoch_grows_after_a_release(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let first = kit.hold(&a, "d").await;
    assert_eq!(kit.release(&a, &first).await, Released::Freed);
    assert!(kit.hold(&b, "d").await.epoch > first.epoch);
}

async fn the_epoch_grows_after_an_expiry(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let first = kit.hold(&a, "d").await;
    kit.lapse(&a).await;
    assert!(kit.hold(&b, "d").await.epoch > first.epoch);
}

async fn the_epoch_grows_after_a_close(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let first = kit.hold(&a, "d").await;
    kit.store.close_session(&a, &reason("done")).await.unwrap();
    assert!(kit.hold(&b, "d").await.epoch > first.epoch);
}

async fn the_epoch_grows_when_the_same_instance_returns(kit: Kit) {
    let a = kit.join("a").await;
    let first = kit.hold(&a, "d").await;
    kit.lapse(&a).await;
    let again = OpenSession { instance: a.instance.clone(), ..kit.wish("a") };
    kit.open(&again).await;
    assert!(kit.hold(&again.session(), "d").await.epoch > first.epoch);
}

async fn claim_with_floor(kit: &Kit, session: &tenure_core::Session, floor: Epoch) -> Hold {
    let want = ClaimRequest { duty: kit.duty("d"), floor };
    let claimed = kit.store.claim(session, &[want], &reason("case")).await.unwrap();
    granted(claimed.into_iter().next().unwrap())
}

async fn a_floor_raises_the_grant(kit: Kit) {
    let a = kit.join("a").await;
    let first = kit.hold(&a, "d").await;
    kit.release(&a, &first).await;
    let floor = Epoch::new(first.epoch.get() + 1_000).unwrap();
    let raised = claim_with_floor(&kit, &a, floor).await;
    assert_eq!(raised.epoch, floor.next().unwrap());
    kit.release(&a, &raised).await;
    assert!(kit.hold(&a, "d").await.epoch > raised.epoch);
}

async fn a_floor_below_changes_nothing(kit: Kit) {
    let a = kit.join("a").await;
    let first = kit.hold(&a, "d").await;
    kit.release(&a, &first).await;
    let second = claim_with_floor(&kit, &a, Epoch::new(1).unwrap()).await;
    assert_eq!(second.epoch, first.epoch.next().unwrap());
}

/// A duty whose lease record was lost keeps its checkpoint.
async fn the_checkpoint_s_epoch_is_a_floor(kit: Kit) {
    let a = kit.join("a").await;
    let far = Epoch::new(1 << 52).unwrap();
    let hold = claim_with_floor(&kit, &a, far).await;
    kit.commit(&a, &hold, 0, "cursor").await;
    kit.place.lose_epoch(hold.duty.clone()).await;
    let b = kit.join("b").await;
    assert!(kit.hold(&b, "d").await.epoch > hold.epoch);
}

async fn a_floor_at_the_end_of_the_range_is_refused_whole(kit: Kit) {
    let a = kit.join("a").await;
    let wants = [
        ClaimRequest::new(kit.duty("fine")),
        ClaimRequest { duty: kit.duty("exhausted"), floor: Epoch::MAX_VALUE },
    ];
    let error = kit.store.claim(&a, &wants, &reason("case")).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(_)), "{error}");
    assert_eq!(error.code(), Code::Exhausted);
    let holders = kit.store.holders(&kit.group).await.unwrap();
    assert!(holders.iter().all(|holder| holder.holder.is_none()), "{holders:?}");
}

async fn the_last_epoch_can_be_held_and_asked_for_again(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let last = claim_with_floor(&kit, &a, Epoch::new(Epoch::MAX_VALUE.get() - 1).unwrap()).await;
    assert_eq!(last.epoch, Epoch::MAX_VALUE);
    let again = kit.claim(&a, &[kit.duty("d")]).await.remove(0);
    assert!(matches!(again, Claimed::Already(hold) if hold.epoch == Epoch::MAX_VALUE));
    assert!(is_held(&kit.claim(&b, &[kit.duty("d")]).await[0]));
    kit.release(&a, &last).await;
    let want = ClaimRequest::new(kit.duty("d"));
    let error = kit.store.claim(&b, &[want], &reason("case")).await.unwrap_err();
    assert_eq!(error.code(), Code::Exhausted);
}

async fn release_by_another_is_refused(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let hold = kit.hold(&a, "d").await;
    assert_eq!(kit.release(&b, &hold).await, Released::NotYours);
    let stolen = Hold { instance: b.instance.clone(), nonce: b.nonce, ..hold.clone() };
    assert_eq!(kit.release(&b, &stolen).await, Released::NotYours);
    assert_eq!(kit.fates(&a, &[hold]).await, [HoldFate::Kept]);
}

async fn release_is_idempotent(kit: Kit) {
    let a = kit.join("a").await;
    let hold = kit.hold(&a, "d").await;
    assert_eq!(kit.release(&a, &hold).await, Released::Freed);
    assert_eq!(kit.release(&a, &hold).await, Released::Already);
    let b = kit.join("b").await;
    let next = kit.hold(&b, "d").await;
    assert_eq!(kit.release(&a, &hold).await, Released::NotYours);
    assert_eq!(kit.fates(&b, &[next]).await, [HoldFate::Kept]);
}

async fn release_of_an_older_epoch_frees_nothing(kit: Kit) {
    let a = kit.join("a").await;
    let old = kit.hold(&a, "d").await;
    kit.release(&a, &old).await;
    let new = kit.hold(&a, "d").await;
    assert_eq!(kit.release(&a, &old).await, Released::NotYours);
    assert_eq!(kit.fates(&a, &[new]).await, [HoldFate::Kept]);
}

async fn release_of_an_expired_hold_changes_nothing(kit: Kit) {
    let a = kit.join("a").await;
    let hold = kit.hold(&a, "d").await;
    kit.lapse(&a).await;
    assert_eq!(kit.release(&a, &hold).await, Released::Already);
}

async fn an_expired_hold_cannot_be_renewed(kit: Kit) {
    let a = kit.join("a").await;
    let hold = kit.hold(&a, "d").await;
    kit.lapse(&a).await;
    assert_eq!(kit.keep_alive(&a, &[hold.clone()]).await, KeptAlive::Ended);
    let holders = kit.store.holders(&kit.group).await.unwrap();
    assert!(holders[0].holder.is_none(), "{holders:?}");
    let b = kit.join("b").await;
    assert!(kit.hold(&b, "d").await.epoch > hold.epoch);
}

async fn a_hold_of_an_ended_session_is_not_inherited(kit: Kit) {
    let a = kit.join("a").await;
    let old = kit.hold(&a, "d").await;
    kit.lapse(&a).await;
    let again = OpenSession { instance: a.instance.clone(), ..kit.wish("a") };
    kit.open(&again).await;
    let session = again.session();
    assert_eq!(kit.fates(&session, &[old.clone()]).await, [HoldFate::Lost]);
    let dressed_up = Hold { nonce: session.nonce, ..old };
    assert_eq!(kit.fates(&session, &[dressed_up]).await, [HoldFate::Lost]);
}

async fn keep_alive_tells_the_fate_of_each_hold(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let mine = kit.hold_all(&a, &kit.duties(3)).await;
    kit.release(&a, &mine[1]).await;
    let other = kit.hold(&b, "d00001").await;
    let asked = [mine[0].clone(), mine[1].clone(), mine[2].clone(), other];
    use HoldFate::{Kept, Lost};
    let fates = kit.fates(&a, &asked[..3]).await;
    assert_eq!(fates, [Kept, Lost, Kept]);
    assert_eq!(kit.fates(&a, &asked[3..]).await, [Lost]);
    assert_eq!(kit.fates(&b, &asked[3..]).await, [Kept]);
}

/// The mark that one task remembers must not hide another task's release from its keep-alive.
async fn a_stale_mark_never_hides_a_loss(kit: Kit) {
    let a = kit.join("a").await;
    let mut holds = kit.hold_all(&a, &kit.duties(4)).await;
    for lost in 0..4 {
        kit.release(&a, &holds[lost]).await;
        let KeptAlive::Kept { mark, holds: fates } = kit.keep_alive(&a, &holds).await else {
            panic!("ended")
        };
        for (index, fate) in fates.iter().enumerate() {
            let expected = if index <= lost { HoldFate::Lost } else { HoldFate::Kept };
            assert_eq!(*fate, expected, "hold {index} after losing {lost}");
        }
        for hold in &mut holds[lost + 1..] {
            hold.mark = mark;
        }
    }
}

async fn a_hold_that_was_never_granted_is_lost(kit: Kit) {
    let a = kit.join("a").await;
    let hold = kit.hold(&a, "d").await;
    let stale = Mark(hold.mark.0.wrapping_sub(1));
    let forged = Hold { duty: kit.duty("never"), mark: stale, ..hold.clone() };
    assert_eq!(kit.fates(&a, &[forged, hold]).await, [HoldFate::Lost, HoldFate::Kept]);
}

async fn a_hold_with_another_epoch_is_lost(kit: Kit) {
    let a = kit.join("a").await;
    let old = kit.hold(&a, "d").await;
    kit.release(&a, &old).await;
    let new = kit.hold(&a, "d").await;
    assert_eq!(kit.fates(&a, &[old]).await, [HoldFate::Lost]);
    assert_eq!(kit.fates(&a, &[new]).await, [HoldFate::Kept]);
}

async fn claiming_without_a_session_gives_nothing(kit: Kit) {
    let never = kit.wish("never").session();
    assert_eq!(kit.claim(&never, &[kit.duty("d")]).await, [Claimed::SessionEnded]);
    assert!(kit.store.holders(&kit.group).await.unwrap().iter().all(|h| h.holder.is_none()));
}

async fn claiming_with_an_expired_session_gives_nothing(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    kit.lapse(&a).await;
    assert_eq!(kit.claim(&a, &[kit.duty("d")]).await, [Claimed::SessionEnded]);
    kit.hold(&b, "d").await;
}

async fn closing_frees_every_hold(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let duties = kit.duties(20);
    let first = kit.hold_all(&a, &duties).await;
    kit.store.close_session(&a, &reason("done")).await.unwrap();
    let second = kit.hold_all(&b, &duties).await;
    assert!(first.iter().zip(&second).all(|(old, new)| new.epoch > old.epoch));
}

async fn a_batch_answers_in_order(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    kit.hold(&a, "theirs").await;
    kit.hold(&b, "mine").await;
    let asked = [kit.duty("z-new"), kit.duty("theirs"), kit.duty("a-new"), kit.duty("mine")];
    let claimed = kit.claim(&b, &asked).await;
    assert_eq!(granted(claimed[0].clone()).duty, asked[0]);
    assert!(is_held(&claimed[1]));
    assert_eq!(granted(claimed[2].clone()).duty, asked[2]);
    assert!(matches!(&claimed[3], Claimed::Already(hold) if hold.duty == asked[3]));
}

async fn empty_batches_are_answered(kit: Kit) {
    let a = kit.join("a").await;
    assert!(kit.claim(&a, &[]).await.is_empty());
    assert!(kit.fates(&a, &[]).await.is_empty());
    assert!(kit.store.release(&a, &[], &reason("case")).await.unwrap().is_empty());
    assert!(kit.store.commit(&a, &[]).await.unwrap().is_empty());
    assert!(kit.store.load(&[]).await.unwrap().is_empty());
}

async fn ten_thousand_holds_live_on_by_one_call(kit: Kit) {
    let a = kit.join("a").await;
    let duties = kit.duties(10_000);
    let mut holds = kit.hold_all(&a, &duties).await;
    assert!(kit.fates(&a, &holds).await.iter().all(|fate| *fate == HoldFate::Kept));
    // One hold in the middle is lost: the answer must name exactly that one.
    kit.release(&a, &holds[5_000]).await;
    let fates = kit.fates(&a, &holds).await;
    let lost: Vec<_> = (0..10_000).filter(|n| fates[*n] != HoldFate::Kept).collect();
    assert_eq!(lost, [5_000]);
    holds.remove(5_000);
    let released = kit.store.release(&a, &holds, &reason("case")).await.unwrap();
    assert!(released.iter().all(|released| *released == Released::Freed));
}

async fn holders_lists_held_and_free_duties(kit: Kit) {
    let a = kit.join("a").await;
    let holds = kit.hold_all(&a, &kit.duties(3)).await;
    kit.release(&a, &holds[1]).await;
    let holders = kit.other_client().await.store.holders(&kit.group).await.unwrap();
    let seen: Vec<_> = holders
        .iter()
        .map(|h| (h.duty.id.as_str(), h.epoch, h.holder.as_ref().map(|now| &now.instance)))
        .collect();
    assert_eq!(
        seen,
        [
            ("d00000", Some(holds[0].epoch), Some(&a.instance)),
            ("d00001", Some(holds[1].epoch), None),
            ("d00002", Some(holds[2].epoch), Some(&a.instance)),
        ]
    );
}

async fn duties_of_two_groups_are_apart(kit: Kit) {
    let other = Kit::new(kit.place.clone()).await;
    let (here, there) = (kit.join("a").await, other.join("a").await);
    kit.hold(&here, "d").await;
    other.hold(&there, "d").await;
    assert_eq!(kit.store.holders(&kit.group).await.unwrap().len(), 1);
}

async fn an_expired_holder_does_not_block_another_duty(kit: Kit) {
    let (a, b, c) = (kit.join("a").await, kit.join("b").await, kit.join("c").await);
    kit.hold(&a, "dead").await;
    kit.hold(&c, "live").await;
    kit.lapse(&a).await;
    let claimed = kit.claim(&b, &[kit.duty("dead"), kit.duty("live")]).await;
    granted(claimed[0].clone());
    assert!(is_held(&claimed[1]));
}
