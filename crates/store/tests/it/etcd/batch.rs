//! Limits of one etcd transaction: 128 operations and 1.5 MiB.

use tenure_core::Document;
use tenure_core::store::{Claimed, Commit, Committed, HoldFate, KeptAlive, Released};

use super::kit::*;

/// One transaction could not hold them, and a single outcome for all would hide who holds what.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_claims_have_outcomes_of_their_own() {
    let server = server();
    let store = open(&server).await;
    let (a, b) = (join(&*store, "a").await, join(&*store, "b").await);
    let all = duties(10_000);
    let (theirs, mine): (Vec<_>, Vec<_>) =
        all.iter().cloned().enumerate().partition(|(n, _)| n % 7 == 3);
    let taken: Vec<_> = theirs.iter().map(|(_, duty)| duty.clone()).collect();
    claim_all(&*store, &b, &taken).await.unwrap();
    let first = granted(claim_all(&*store, &a, &all[..1]).await.unwrap().remove(0));

    let claimed = claim_all(&*store, &a, &all).await.unwrap();
    assert_eq!(claimed.len(), all.len());
    for (n, _) in theirs {
        let Claimed::HeldBy(Some(holder)) = &claimed[n] else { panic!("{:?}", claimed[n]) };
        assert_eq!(holder.instance, b.instance);
    }
    assert!(matches!(&claimed[0], Claimed::Already(hold) if hold.epoch == first.epoch));
    let holds: Vec<_> = mine[1..].iter().map(|(n, _)| granted(claimed[*n].clone())).collect();
    assert!(mine[1..].iter().zip(&holds).all(|((_, duty), hold)| *duty == hold.duty));
    assert!(holds.iter().all(|hold| hold.epoch.get() == 1));

    let KeptAlive::Kept { holds: fates, .. } = store.keep_alive(&a, None, &holds).await.unwrap()
    else {
        panic!("ended")
    };
    assert!(fates.iter().all(|fate| *fate == HoldFate::Kept));
    let released = store.release(&a, &holds, &reason()).await.unwrap();
    assert!(released.iter().all(|released| *released == Released::Freed));
}

/// Twenty of the largest documents are ten times the size limit of a request.
#[tokio::test(flavor = "multi_thread")]
async fn large_documents_are_committed_in_parts() {
    let server = server();
    let store = open(&server).await;
    let a = join(&*store, "a").await;
    let claimed = claim_all(&*store, &a, &duties(20)).await.unwrap();
    let commits: Vec<_> = claimed
        .into_iter()
        .map(|claimed| Commit {
            hold: granted(claimed),
            expected: tenure_core::Version::ZERO,
            document: Document::new(vec![b'x'; Document::MAX_DOCUMENT_BYTES]).unwrap(),
        })
        .collect();
    let committed: Vec<Committed> = store.commit(&a, &commits).await.unwrap();
    assert_eq!(committed, vec![saved(1); 20]);
    let stored = store.load(&duties(20)).await.unwrap();
    assert!(
        stored
            .iter()
            .flatten()
            .all(|c| c.document.as_bytes().len() == Document::MAX_DOCUMENT_BYTES)
    );
    assert_eq!(stored.iter().flatten().count(), 20);
}
