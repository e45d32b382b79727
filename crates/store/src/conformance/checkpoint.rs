//! Contract 11 to 14: checkpoints.

use std::sync::Arc;

use tenure_core::store::{Checkpoint, Commit, Committed};
use tenure_core::{Document, Hold, Session};

use super::kit::{Kit, doc, reason, version};

super::cases! { "checkpoint":
    there_is_none_at_first,
    a_first_commit_can_be_read_back,
    versions_count_the_writes,
    a_commit_without_a_hold_is_fenced,
    a_commit_after_a_takeover_is_fenced,
    a_commit_after_an_expiry_is_fenced,
    a_commit_after_a_release_is_fenced,
    a_commit_by_another_session_is_fenced,
    a_commit_under_an_older_epoch_is_fenced,
    a_conflicting_commit_changes_nothing,
    a_fenced_commit_changes_nothing,
    the_next_holder_goes_on_from_the_last_version,
    a_new_holder_with_a_stale_version_gets_a_conflict,
    a_checkpoint_outlives_hold_and_session,
    a_lost_reply_can_be_read_again,
    every_byte_is_kept,
    the_largest_document_is_kept,
    history_is_newest_first,
    history_is_a_ring,
    history_of_nothing_is_empty,
    a_batch_answers_per_item,
    load_answers_in_order,
}

async fn held(kit: &Kit) -> (Session, Hold) {
    let session = kit.join("a").await;
    let hold = kit.hold(&session, "d").await;
    (session, hold)
}

fn saved(number: u64) -> Committed {
    Committed::Saved(version(number))
}

async fn there_is_none_at_first(kit: Kit) {
    let (_, hold) = held(&kit).await;
    assert_eq!(kit.load(&hold.duty).await, None);
}

async fn a_first_commit_can_be_read_back(kit: Kit) {
    let (a, hold) = held(&kit).await;
    assert_eq!(kit.commit(&a, &hold, 0, "cursor 1").await, saved(1));
    let stored = kit.other_client().await.load(&hold.duty).await.unwrap();
    assert_eq!((stored.version, stored.epoch), (version(1), hold.epoch));
    assert_eq!((stored.instance, stored.document), (a.instance, doc("cursor 1")));
}

async fn versions_count_the_writes(kit: Kit) {
    let (a, hold) = held(&kit).await;
    for number in 0..5 {
        let committed = kit.commit(&a, &hold, number, &format!("cursor {number}")).await;
        assert_eq!(committed, saved(number + 1));
    }
}

async fn a_commit_without_a_hold_is_fenced(kit: Kit) {
    let (a, hold) = held(&kit).await;
    let forged = Hold { duty: kit.duty("never"), ..hold };
    assert!(matches!(kit.commit(&a, &forged, 0, "x").await, Committed::Fenced { .. }));
    assert_eq!(kit.load(&forged.duty).await, None);
}

async fn a_commit_after_a_takeover_is_fenced(kit: Kit) {
    let (a, old) = held(&kit).await;
    kit.commit(&a, &old, 0, "first").await;
    kit.lapse(&a).await;
    let b = kit.join("b").await;
    let new = kit.hold(&b, "d").await;
    let late = kit.commit(&a, &old, 1, "zombie").await;
    assert_eq!(late, Committed::Fenced { newest: new.epoch });
    assert_eq!(kit.load(&old.duty).await.unwrap().document, doc("first"));
}

async fn a_commit_after_an_expiry_is_fenced(kit: Kit) {
    let (a, hold) = held(&kit).await;
    kit.lapse(&a).await;
    let late = kit.commit(&a, &hold, 0, "late").await;
    assert_eq!(late, Committed::Fenced { newest: hold.epoch });
    assert_eq!(kit.load(&hold.duty).await, None);
}

async fn a_commit_after_a_release_is_fenced(kit: Kit) {
    let (a, hold) = held(&kit).await;
    kit.release(&a, &hold).await;
    assert!(matches!(kit.commit(&a, &hold, 0, "late").await, Committed::Fenced { .. }));
    assert_eq!(kit.load(&hold.duty).await, None);
}

async fn a_commit_by_another_session_is_fenced(kit: Kit) {
    let (_, hold) = held(&kit).await;
    let b = kit.join("b").await;
    assert!(matches!(kit.commit(&b, &hold, 0, "x").await, Committed::Fenced { .. }));
    let stolen = Hold { instance: b.instance.clone(), nonce: b.nonce, ..hold.clone() };
    assert!(matches!(kit.commit(&b, &stolen, 0, "x").await, Committed::Fenced { .. }));
    assert_eq!(kit.load(&hold.duty).await, None);
}

async fn a_commit_under_an_older_epoch_is_fenced(kit: Kit) {
    let (a, old) = held(&kit).await;
    kit.release(&a, &old).await;
    let new = kit.hold(&a, "d").await;
    let late = kit.commit(&a, &old, 0, "x").await;
    assert_eq!(late, Committed::Fenced { newest: new.epoch });
    assert_eq!(kit.commit(&a, &new, 0, "y").await, saved(1));
}

async fn state(kit: &Kit, hold: &Hold) -> (Option<Checkpoint>, Vec<Checkpoint>) {
    (kit.load(&hold.duty).await, kit.store.history(&hold.duty).await.unwrap())
}

async fn a_conflicting_commit_changes_nothing(kit: Kit) {
    let (a, hold) = held(&kit).await;
    kit.commit(&a, &hold, 0, "one").await;
    kit.commit(&a, &hold, 1, "two").await;
    let before = state(&kit, &hold).await;
    for wrong in [0, 1, 3, 1 << 40] {
        let committed = kit.commit(&a, &hold, wrong, "three").await;
        assert_eq!(committed, Committed::Conflict { stored: version(2) });
    }
    assert_eq!(state(&kit, &hold).await, before);
}

async fn a_fenced_commit_changes_nothing(kit: Kit) {
    let (a, hold) = held(&kit).await;
    kit.commit(&a, &hold, 0, "one").await;
    let before = state(&kit, &hold).await;
    kit.lapse(&a).await;
    for expected in [0, 1, 2] {
        let late = kit.commit(&a, &hold, expected, "two").await;
        assert!(matches!(late, Committed::Fenced { .. }));
    }
    assert_eq!(state(&kit, &hold).await, before);
}

async fn the_next_holder_goes_on_from_the_last_version(kit: Kit) {
    let (a, first) = held(&kit).await;
    kit.commit(&a, &first, 0, "one").await;
    kit.release(&a, &first).await;
    let b = kit.join("b").await;
    let second = kit.hold(&b, "d").await;
    let read = kit.load(&second.duty).await.unwrap();
    assert_eq!((read.version, read.epoch), (version(1), first.epoch));
    assert_eq!(kit.commit(&b, &second, 1, "two").await, saved(2));
    assert_eq!(kit.load(&second.duty).await.unwrap().epoch, second.epoch);
}

/// A commit of the previous holder never counts as one of the new holder, even after a lost answer.
async fn a_new_holder_with_a_stale_version_gets_a_conflict(kit: Kit) {
    use super::SettledStore;
    use crate::conformance::wrap::{Fault, Flaky, Op};
    let (a, first) = held(&kit).await;
    kit.commit(&a, &first, 0, "one").await;
    kit.release(&a, &first).await;
    let b = kit.join("b").await;
    let second = kit.hold(&b, "d").await;
    let conflict = Committed::Conflict { stored: version(1) };
    assert_eq!(kit.commit(&b, &second, 0, "two").await, conflict);
    for fault in [Fault::LostBeforeItHappened, Fault::HappenedButLost] {
        let lossy =
            SettledStore::new(Arc::new(Flaky::planned(kit.store.clone()).on(Op::Commit, fault)));
        let commit = Commit { hold: second.clone(), expected: version(0), document: doc("two") };
        let committed = tenure_core::Store::commit(&lossy, &b, &[commit]).await.unwrap();
        assert_eq!(committed, [conflict]);
    }
    assert_eq!(kit.load(&second.duty).await.unwrap().document, doc("one"));
}

async fn a_checkpoint_outlives_hold_and_session(kit: Kit) {
    let (a, hold) = held(&kit).await;
    kit.commit(&a, &hold, 0, "one").await;
    let before = kit.load(&hold.duty).await;
    kit.lapse(&a).await;
    assert_eq!(kit.load(&hold.duty).await, before);
    let b = kit.join("b").await;
    kit.hold(&b, "d").await;
    kit.store.close_session(&b, &reason("done")).await.unwrap();
    assert_eq!(kit.load(&hold.duty).await, before);
}

/// After a lost answer, the caller can tell its own write from another one by reading.
async fn a_lost_reply_can_be_read_again(kit: Kit) {
    use crate::conformance::wrap::{Fault, Flaky, Op};
    let (a, hold) = held(&kit).await;
    let lossy = Flaky::planned(kit.store.clone()).on(Op::Commit, Fault::HappenedButLost);
    let commit = Commit { hold: hold.clone(), expected: version(0), document: doc("mine") };
    let commits = std::slice::from_ref(&commit);
    let error = tenure_core::Store::commit(&lossy, &a, commits).await.unwrap_err();
    assert!(error.is_unknown());
    let stored = kit.load(&hold.duty).await.unwrap();
    assert_eq!((stored.version, stored.epoch), (version(1), hold.epoch));
    assert_eq!((stored.instance, stored.document), (a.instance.clone(), doc("mine")));
    // A blind repeat is refused, not applied twice.
    let again = kit.commit(&a, &hold, 0, "again").await;
    assert_eq!(again, Committed::Conflict { stored: version(1) });
}

async fn every_byte_is_kept(kit: Kit) {
    let (a, hold) = held(&kit).await;
    let bytes: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    for (expected, bytes) in [Vec::new(), bytes].into_iter().enumerate() {
        let document = Document::new(bytes).unwrap();
        let expected = version(expected as u64);
        let commit = Commit { hold: hold.clone(), expected, document: document.clone() };
        kit.store.commit(&a, &[commit]).await.unwrap();
        assert_eq!(kit.load(&hold.duty).await.unwrap().document, document);
    }
}

async fn the_largest_document_is_kept(kit: Kit) {
    let (a, hold) = held(&kit).await;
    let document = Document::new(vec![b'x'; Document::MAX_DOCUMENT_BYTES]).unwrap();
    let commit = Commit { hold: hold.clone(), expected: version(0), document: document.clone() };
    assert_eq!(kit.store.commit(&a, &[commit]).await.unwrap(), [saved(1)]);
    assert_eq!(kit.load(&hold.duty).await.unwrap().document, document);
}

async fn history_is_newest_first(kit: Kit) {
    let (a, hold) = held(&kit).await;
    for number in 0..3 {
        kit.commit(&a, &hold, number, &format!("cursor {number}")).await;
    }
    let history = kit.store.history(&hold.duty).await.unwrap();
    let seen: Vec<_> = history.iter().map(|c| (c.version.get(), c.document.clone())).collect();
    assert_eq!(seen, [(3, doc("cursor 2")), (2, doc("cursor 1")), (1, doc("cursor 0"))]);
    assert_eq!(kit.load(&hold.duty).await.as_ref(), history.first());
}

async fn history_is_a_ring(kit: Kit) {
    let (a, hold) = held(&kit).await;
    let slots = kit.store.abilities().history_slots as u64;
    let last = slots * 2 + 3;
    for number in 0..last {
        kit.commit(&a, &hold, number, &format!("cursor {number}")).await;
    }
    let history = kit.store.history(&hold.duty).await.unwrap();
    let versions: Vec<_> = history.iter().map(|checkpoint| checkpoint.version.get()).collect();
    assert_eq!(versions, (last - slots + 1..=last).rev().collect::<Vec<_>>());
    let oldest = history.last().unwrap();
    assert_eq!(oldest.document, doc(&format!("cursor {}", last - slots)));
}

async fn history_of_nothing_is_empty(kit: Kit) {
    assert!(kit.store.history(&kit.duty("never")).await.unwrap().is_empty());
}

async fn a_batch_answers_per_item(kit: Kit) {
    let a = kit.join("a").await;
    let holds = kit.hold_all(&a, &kit.duties(4)).await;
    kit.commit(&a, &holds[1], 0, "ahead").await;
    kit.release(&a, &holds[2]).await;
    let commits: Vec<_> = holds
        .iter()
        .map(|hold| Commit { hold: hold.clone(), expected: version(0), document: doc("batch") })
        .collect();
    let committed = kit.store.commit(&a, &commits).await.unwrap();
    assert_eq!(
        committed,
        [
            saved(1),
            Committed::Conflict { stored: version(1) },
            Committed::Fenced { newest: holds[2].epoch },
            saved(1),
        ]
    );
    let duties: Vec<_> = holds.iter().map(|hold| hold.duty.clone()).collect();
    let stored = kit.store.load(&duties).await.unwrap();
    let seen: Vec<_> = stored.iter().map(|c| c.as_ref().map(|c| c.document.clone())).collect();
    assert_eq!(seen, [Some(doc("batch")), Some(doc("ahead")), None, Some(doc("batch"))]);
}

async fn load_answers_in_order(kit: Kit) {
    let a = kit.join("a").await;
    let holds = kit.hold_all(&a, &kit.duties(3)).await;
    kit.commit(&a, &holds[2], 0, "two").await;
    kit.commit(&a, &holds[0], 0, "zero").await;
    let asked = [holds[2].duty.clone(), kit.duty("never"), holds[0].duty.clone()];
    let stored = kit.store.load(&asked).await.unwrap();
    let seen: Vec<_> = stored.iter().map(|c| c.as_ref().map(|c| c.document.clone())).collect();
    assert_eq!(seen, [Some(doc("two")), None, Some(doc("zero"))]);
}
