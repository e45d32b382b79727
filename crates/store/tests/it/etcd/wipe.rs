//! An etcd wiped under open handles: no earlier epoch is granted again.

use tenure_core::store::{ClaimRequest, Claimed};
use tenure_core::{Code, Epoch, Store};
use tenure_store::{IfAbsent, StoreUrl};
use testkit::EtcdServer;

use super::kit::*;

fn wipe(server: &EtcdServer) {
    server.etcdctl(&["del", "--prefix", ""]).unwrap();
}

/// Gets the reset error, continues with the new store, and claims.
async fn epoch_after(store: &dyn Store) -> Epoch {
    let wish = wish("after", 3600);
    assert_eq!(refused(store.open_session(&wish).await), Some(Code::Reset));
    store.open_session(&wish).await.unwrap();
    hold(store, &wish.session(), "d").await.epoch
}

async fn hold_above(store: &dyn Store, floor: u64) -> tenure_core::Hold {
    let a = join(store, "a").await;
    let want = ClaimRequest { duty: duty("d"), floor: Epoch::new(floor).unwrap() };
    granted(store.claim(&a, &[want], &reason()).await.unwrap().remove(0))
}

/// The handle that creates the new store has seen none of the epochs.
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_saw_nothing_goes_on_above_the_epochs_of_others() {
    let server = server();
    let (one, two) = (open(&server).await, open(&server).await);
    let last = hold_above(&*one, 41).await;
    wipe(&server);
    let again = epoch_after(&*two).await;
    assert!(again > last.epoch, "{again} after {}", last.epoch);
}

/// A new process recreates the store; a handle that has seen higher epochs raises its floor.
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_knows_more_raises_the_floor_of_the_new_store() {
    let server = server();
    let one = open(&server).await;
    let last = hold_above(&*one, 41).await;
    wipe(&server);
    let new = open(&server).await;
    assert_eq!(hold_above(&*new, 0).await.epoch.get(), 1);
    let wish = wish("b", 3600);
    assert_eq!(refused(one.open_session(&wish).await), Some(Code::Reset));
    one.open_session(&wish).await.unwrap();
    let b = join(&*new, "b").await;
    let again = hold(&*new, &b, "other").await.epoch;
    assert!(again > last.epoch, "{again} after {}", last.epoch);
}

/// A handle learns of epochs not only by grants. The epochs are above the clock, which cannot help.
#[tokio::test(flavor = "multi_thread")]
async fn every_epoch_that_a_handle_was_told_of_counts() {
    const ABOVE_CLOCKS: u64 = 1 << 52;
    for how in ["already", "keep-alive", "commit", "load", "floor"] {
        let server = server();
        let (one, two) = (open(&server).await, open(&server).await);
        let a = join(&*one, "a").await;
        let want = ClaimRequest { duty: duty("d"), floor: Epoch::new(ABOVE_CLOCKS).unwrap() };
        let wants = std::slice::from_ref(&want);
        let held = granted(one.claim(&a, wants, &reason()).await.unwrap().remove(0));
        match how {
            "already" => assert!(matches!(claim(&*two, &a, "d").await, Claimed::Already(_))),
            "keep-alive" => assert!(is_kept(&keep(&*two, &a, &held).await)),
            "commit" => assert_eq!(commit(&*two, &a, &held, 0).await.unwrap(), saved(1)),
            "load" => {
                assert_eq!(commit(&*one, &a, &held, 0).await.unwrap(), saved(1));
                assert!(load(&*two, "d").await.is_some());
            }
            _ => {
                let b = join(&*two, "b").await;
                let told = two.claim(&b, wants, &reason()).await.unwrap();
                assert!(matches!(told[..], [Claimed::HeldBy(_)]));
            }
        }
        wipe(&server);
        let again = epoch_after(&*two).await;
        // A floor itself was never granted.
        assert!(again.get() > ABOVE_CLOCKS, "{how}: {again}");
        assert!(how == "floor" || again > held.epoch, "{how}: {again}");
    }
}

/// A handle opened with `IfAbsent::Refuse` does not create a store later.
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_must_not_create_does_not_create_a_lost_store() {
    let server = server();
    drop(open(&server).await);
    let url = StoreUrl::parse(&server.url()).unwrap();
    let store = url.open(IfAbsent::Refuse, unique()).await.unwrap();
    wipe(&server);
    let wish = wish("b", 3600);
    assert_eq!(refused(store.open_session(&wish).await), Some(Code::Reset));
    assert_eq!(refused(store.open_session(&wish).await), Some(Code::Absent));
}
