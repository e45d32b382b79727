//! Evictions stay in force whatever the evicted instance does; keys that end with a lease.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure_core::store::{Claimed, Committed, Evict, Evicted, KeptAlive, Opened};
use tenure_core::{Clock, InstanceId};
use tenure_store::BootClock;
use testkit::EtcdServer;

use super::kit::*;

/// Any process that knows a lease's id can keep it alive: an evicted member must not be able to.
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

/// Commits run while the instance is evicted: those after the eviction must be fenced.
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

/// A checkpoint attached to the lease would be deleted with it.
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

/// Returns the lease of a key, as etcd prints it.
fn lease_of(server: &EtcdServer, key: &str) -> String {
    let fields = server.etcdctl(&["get", key, "-w", "fields"]).unwrap();
    let line = fields.lines().find_map(|line| line.strip_prefix("\"Lease\" : "));
    format!("{:x}", line.unwrap().parse::<u64>().unwrap())
}

/// Grants a lease that no handle uses.
fn other_lease(server: &EtcdServer) -> String {
    let granted = server.etcdctl(&["lease", "grant", "3600"]).unwrap();
    granted.split_whitespace().nth(1).unwrap().to_owned()
}

/// The record of the first eviction is about to expire when the instance is evicted again.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_eviction_is_remembered_as_long_as_the_first() {
    let server = server();
    let store = open(&server).await;
    let a = join(&*store, "a").await;
    let key = format!("tenure/group/poll/kept/barred/{}", a.instance.escaped());
    store.evict(&group(), &a.instance, Evict::Now, &reason()).await.unwrap();
    let memory = lease_of(&server, &key);
    let old = other_lease(&server);
    server.etcdctl(&["put", &key, "", &format!("--lease={old}")]).unwrap();
    let again = store.evict(&group(), &a.instance, Evict::Now, &reason()).await.unwrap();
    assert_eq!(again, Evicted::NotAMember);
    assert_eq!(lease_of(&server, &key), memory);
}

/// After two weeks of keep-alives the first record of the nonce has expired, the session has not.
#[tokio::test(flavor = "multi_thread")]
async fn the_nonce_of_a_long_session_is_spent_when_it_ends() {
    for how in ["keep-alive", "note", "close", "evict"] {
        let server = server();
        let store = open(&server).await;
        let wish = wish("a", 3600);
        store.open_session(&wish).await.unwrap();
        let a = wish.session();
        let key = format!("tenure/group/poll/kept/spent/{}", a.nonce);
        let memory = lease_of(&server, &key);
        let old = other_lease(&server);
        server.etcdctl(&["put", &key, "", &format!("--lease={old}")]).unwrap();
        let note = (how == "note").then(|| tenure_core::Note::new("n").unwrap());
        match how {
            "close" => drop(store.close_session(&a, &reason()).await.unwrap()),
            "evict" => {
                store.evict(&group(), &a.instance, Evict::Now, &reason()).await.unwrap();
            }
            _ => drop(store.keep_alive(&a, note.as_ref(), &[]).await.unwrap()),
        }
        assert_eq!(lease_of(&server, &key), memory, "{how}");
        if how == "close" {
            assert_eq!(store.open_session(&wish).await.unwrap(), Opened::Spent);
        }
    }
}

/// Whether a future was woken: a request of it was answered.
struct Answered(AtomicBool);

impl Wake for Answered {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keep-alives between granting the last lease and moving the session to it promise a whole TTL.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_that_takes_long_breaks_no_promise() {
    let server = server();
    let (store, evictor) = (open(&server).await, open(&server).await);
    let a = join_for(&*store, "a", 5).await;
    let held = hold(&*store, &a, "d").await;
    let b = join(&*store, "b").await;
    // Makes the evictor grant its memory lease, so that the next new lease is the session's last.
    let nobody = InstanceId::new("nobody").unwrap();
    evictor.evict(&group(), &nobody, Evict::Now, &reason()).await.unwrap();
    let leases = || server.etcdctl(&["lease", "list"]).unwrap().lines().count();
    let before = leases();
    let (group, reason) = (group(), reason());
    // Extends the session, so that it is alive at this point even on a slow machine.
    assert!(is_kept(&keep(&*store, &a, &held).await));
    let mut evicting = pin!(evictor.evict(&group, &a.instance, Evict::AtTtl, &reason));
    let answered = Arc::new(Answered(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&answered));
    let mut context = Context::from_waker(&waker);
    // Once its request for a lease is answered, the eviction must not be polled, or it would go on.
    loop {
        assert!(is_kept(&keep(&*store, &a, &held).await));
        if answered.0.swap(false, Ordering::Relaxed) {
            if leases() != before {
                break;
            }
            let polled = evicting.as_mut().poll(&mut context);
            assert!(matches!(polled, Poll::Pending), "{polled:?}");
        }
    }
    // The eviction is not polled for four seconds, while the session is kept alive.
    let (start, mut promised) = (BootClock.now(), BootClock.now());
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    while BootClock.now().since(start) < Duration::from_secs(4) {
        tick.tick().await;
        promised = BootClock.now();
        assert!(is_kept(&keep(&*store, &a, &held).await));
    }
    assert_eq!(evicting.await.unwrap(), Evicted::Evicted { ended: 0 });
    until("the evicted one to end", || async {
        matches!(claim(&*store, &b, "d").await, Claimed::Granted(_))
    })
    .await;
    let since = BootClock.now().since(promised);
    assert!(since >= Duration::from_secs(5), "granted {since:?} after a promise of five seconds");
}
