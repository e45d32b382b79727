//! Who is out stays out, whatever it goes on doing; and what a lease takes along when it dies.

use tenure_core::store::{Committed, Evict, Evicted, KeptAlive};

use super::kit::*;

/// A lease is kept alive by whoever knows its number: an evicted member must not be able to.
#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_member_ends_although_it_goes_on_asking() {
    let server = server();
    let store = open(&server).await;
    let a = join_for(&*store, "a", 2).await;
    let held = hold(&*store, &a, "d").await;
    let evicted = store.evict(&group(), &a.instance, Evict::AtTtl, &reason()).await.unwrap();
    assert_eq!(evicted, Evicted::Evicted { ended: 0 });
    assert_eq!(commit(&*store, &a, &held, 0).await.unwrap(), saved(1));
    until("the evicted one to end", || async {
        assert_eq!(keep(&*store, &a, &held).await, KeptAlive::Ended);
        store.members(&group()).await.unwrap().is_empty()
    })
    .await;
    let b = join(&*store, "b").await;
    assert!(hold(&*store, &b, "d").await.epoch > held.epoch);
}

/// Commits run one after the other while somebody evicts: those after it must be fenced.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_fences_the_commits_that_are_under_way() {
    let server = server();
    let store = open(&server).await;
    let a = join(&*store, "a").await;
    let held = hold(&*store, &a, "d").await;
    let running = {
        let (store, a, held) = (store.clone(), a.clone(), held.clone());
        tokio::spawn(async move {
            for number in 0.. {
                let committed = commit(&*store, &a, &held, number).await.unwrap();
                if committed != saved(number + 1) {
                    return (number, committed);
                }
            }
            unreachable!("versions do not end");
        })
    };
    until("some commits", || async { load(&*store, "d").await.is_some() }).await;
    let evicted = store.evict(&group(), &a.instance, Evict::Now, &reason()).await.unwrap();
    assert_eq!(evicted, Evicted::Evicted { ended: 1 });
    let at_eviction = load(&*store, "d").await.unwrap().version;
    let (last, committed) = running.await.unwrap();
    assert_eq!(committed, Committed::Fenced { newest: held.epoch });
    assert_eq!(at_eviction.get(), last, "something was committed after the eviction");
    assert_eq!(load(&*store, "d").await.unwrap().version.get(), last);
}

/// A checkpoint under the lease would be deleted with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_untouched_when_the_lease_dies() {
    let server = server();
    let store = open(&server).await;
    let a = join_for(&*store, "a", 2).await;
    let held = hold(&*store, &a, "d").await;
    assert_eq!(commit(&*store, &a, &held, 0).await.unwrap(), saved(1));
    let before = load(&*store, "d").await;
    until("the lease to die", || async { store.members(&group()).await.unwrap().is_empty() }).await;
    assert_eq!(load(&*store, "d").await, before);
    assert_eq!(store.history(&duty("d")).await.unwrap().len(), 1);
    let kept = server.etcdctl(&["get", "--prefix", "--keys-only", "tenure/group/poll/"]).unwrap();
    assert!(kept.contains("/kept/checkpoint/d") && kept.contains("/live/fence/d"), "{kept}");
    assert!(!kept.contains("/live/session/"), "{kept}");
    let b = join(&*store, "b").await;
    let next = hold(&*store, &b, "d").await;
    assert!(next.epoch > held.epoch);
    assert_eq!(commit(&*store, &b, &next, 1).await.unwrap(), saved(2));
}
