//! Contract 18: requests that are refused before anything is sent.

use tenure_core::store::{ClaimRequest, Commit, HoldFate, MAX_BATCH};
use tenure_core::{Code, DutyKey, Hold, Reason, StoreError, StoreResult};

use super::kit::{Kit, doc, reason, version};

super::cases! { "limits":
    a_batch_above_the_limit_is_refused,
    a_duty_named_twice_is_refused,
    a_duty_of_another_group_is_refused,
}

fn bad_input<T: std::fmt::Debug>(answer: StoreResult<T>) {
    let error = answer.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(_)), "{error}");
    assert_eq!(error.code(), Code::BadInput);
}

fn case() -> Reason {
    reason("case")
}

fn commits(holds: &[Hold]) -> Vec<Commit> {
    let commit =
        |hold: &Hold| Commit { hold: hold.clone(), expected: version(0), document: doc("x") };
    holds.iter().map(commit).collect()
}

async fn nothing_was_stored(kit: &Kit) {
    assert!(kit.store.holders(&kit.group).await.unwrap().iter().all(|h| h.holder.is_none()));
}

async fn a_batch_above_the_limit_is_refused(kit: Kit) {
    let a = kit.join("a").await;
    let hold = kit.hold(&a, "d").await;
    let duties = kit.duties(MAX_BATCH + 1);
    let wants: Vec<_> = duties.iter().cloned().map(ClaimRequest::new).collect();
    let holds: Vec<_> =
        duties.iter().map(|duty| Hold { duty: duty.clone(), ..hold.clone() }).collect();
    bad_input(kit.store.claim(&a, &wants, &case()).await);
    bad_input(kit.store.keep_alive(&a, None, &holds).await);
    bad_input(kit.store.release(&a, &holds, &case()).await);
    bad_input(kit.store.commit(&a, &commits(&holds)).await);
    bad_input(kit.store.load(&duties).await);
    kit.release(&a, &hold).await;
    nothing_was_stored(&kit).await;
}

async fn a_duty_named_twice_is_refused(kit: Kit) {
    let a = kit.join("a").await;
    let want = ClaimRequest::new(kit.duty("twice"));
    bad_input(kit.store.claim(&a, &[want.clone(), want], &case()).await);
    nothing_was_stored(&kit).await;
    let hold = kit.hold(&a, "d").await;
    let twice = [hold.clone(), hold.clone()];
    bad_input(kit.store.release(&a, &twice, &case()).await);
    bad_input(kit.store.commit(&a, &commits(&twice)).await);
    assert_eq!(kit.load(&hold.duty).await, None);
}

async fn a_duty_of_another_group_is_refused(kit: Kit) {
    let a = kit.join("a").await;
    let hold = kit.hold(&a, "d").await;
    let elsewhere = DutyKey::new("elsewhere", "d").unwrap();
    let foreign = [Hold { duty: elsewhere.clone(), ..hold }];
    let wants = [ClaimRequest::new(kit.duty("fine")), ClaimRequest::new(elsewhere.clone())];
    bad_input(kit.store.claim(&a, &wants, &case()).await);
    // A keep-alive only reports fates: a hold of another session is lost here.
    assert_eq!(kit.fates(&a, &foreign).await, [HoldFate::Lost]);
    bad_input(kit.store.release(&a, &foreign, &case()).await);
    bad_input(kit.store.commit(&a, &commits(&foreign)).await);
    assert_eq!(kit.load(&elsewhere).await, None);
    let holders = kit.store.holders(&kit.group).await.unwrap();
    assert_eq!(holders.len(), 1, "{holders:?}");
}
