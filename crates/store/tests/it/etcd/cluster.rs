//! A cluster of three members, one of which fails.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tenure_core::store::{Claimed, KeptAlive};
use tenure_core::{Clock, Code, StoreError};
use tenure_store::BootClock;
use testkit::{EtcdOptions, EtcdServer};

use super::kit::*;

fn three() -> Server {
    start(EtcdOptions { members: 3, ..EtcdOptions::default() })
}

/// A new leader extends all leases: a hold may last longer, but never ends early.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_stands_while_its_leader_is_killed() {
    let server = three();
    let (store, other) = (open(&server).await, open(&server).await);
    let (a, b) = (join_for(&*store, "a", 10).await, join(&*other, "b").await);
    let held = hold(&*store, &a, "d").await;
    assert_eq!(commit(&*store, &a, &held, 0).await.unwrap(), saved(1));

    let leader = server.leader().unwrap();
    server.kill(leader).unwrap();
    let start = BootClock.now();
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    // Longer than the TTL: only a lease that other members kept alive still exists.
    while BootClock.now().since(start) < Duration::from_secs(13) {
        tick.tick().await;
        // During the election a call may fail.
        let kept = store.keep_alive(&a, None, std::slice::from_ref(&held)).await;
        assert!(kept.as_ref().map_or(true, is_kept), "{kept:?}");
        let claimed = claim_all(&*other, &b, &[duty("d")]).await;
        let held_by = |claimed: &Vec<_>| matches!(claimed[..], [Claimed::HeldBy(_)]);
        assert!(claimed.as_ref().map_or(true, held_by), "{claimed:?}");
    }
    assert!(is_kept(&keep(&*store, &a, &held).await));
    let version = load(&*other, "d").await.unwrap().version;
    assert_eq!(commit(&*store, &a, &held, version.get()).await.unwrap(), saved(2));

    server.start_again(leader).unwrap();
    assert!(is_kept(&keep(&*store, &a, &held).await));
    store.close_session(&a, &reason()).await.unwrap();
    let next = hold(&*other, &b, "d").await;
    assert!(next.epoch > held.epoch);
    assert_eq!(commit(&*other, &b, &next, 2).await.unwrap(), saved(3));
}

/// A frozen server accepts connections and never answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_is_left_for_the_next() {
    let server = three();
    let store = open(&server).await;
    let a = join_for(&*store, "a", 10).await;
    let held = hold(&*store, &a, "d").await;
    // The handle uses the first address.
    server.pause(0).unwrap();
    assert!(is_kept(&keep(&*store, &a, &held).await));
    // On a slow machine the outcome may be unknown: then the test reads and tries again.
    until("the commit", || async {
        match commit(&*store, &a, &held, 0).await {
            Ok(committed) => committed == saved(1) || panic!("{committed:?}"),
            Err(error) => {
                assert!(error.is_unknown(), "{error}");
                load(&*store, "d").await.is_some_and(|found| found.version.get() == 1)
            }
        }
    })
    .await;
    server.resume(0).unwrap();
    assert!(is_kept(&keep(&*store, &a, &held).await));
}

/// Without a majority no call succeeds, but every call ends.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_every_call_ends() {
    let server = three();
    let store = open(&server).await;
    let a = join_for(&*store, "a", 60).await;
    let held = hold(&*store, &a, "d").await;
    server.kill(1).unwrap();
    server.kill(2).unwrap();
    let (kept, committed, read) = tokio::join!(
        store.keep_alive(&a, None, std::slice::from_ref(&held)),
        commit(&*store, &a, &held, 0),
        store.members(&held.duty.group),
    );
    assert!(kept.is_err(), "{kept:?}");
    assert!(matches!(&committed, Err(StoreError::Unknown(p)) if p.code == Code::Lost));
    assert_eq!(refused(read), Some(Code::Unreachable));
    server.start_again(1).unwrap();
    until("the majority", || async {
        matches!(store.keep_alive(&a, None, &[]).await, Ok(KeptAlive::Kept { .. }))
    })
    .await;
}

/// Returns the value of a member's metric.
fn counted(server: &EtcdServer, member: usize, name: &str) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port(member))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect("a counter").parse::<f64>().unwrap() as u64
}

/// Returns the number of reads that the servers have done.
fn reads(server: &EtcdServer, members: usize) -> u64 {
    (0..members).map(|member| counted(server, member, "etcd_mvcc_range_total")).sum()
}

/// A leader that was frozen does not know of a new leader at first, and extends leases that the new
/// one does not. Reading the session from the new leader does not make up for that.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_leader_of_the_past_extends_is_extended_again() {
    const RENEWED: &str = "etcd_debugging_lease_renewed_total";
    let (members, proxied_peers) = (3, true);
    let server = start(EtcdOptions { members, proxied_peers, ..EtcdOptions::default() });
    let past = server.leader().unwrap();
    let others: Vec<usize> = (0..members).filter(|member| *member != past).collect();
    // The handle uses the first address.
    let mut hosts: Vec<String> = server.hosts().split(',').map(str::to_owned).collect();
    hosts.swap(0, past);
    let store = try_open(&format!("etcd://{}", hosts.join(","))).await.unwrap();
    let a = join_for(&*store, "a", 60).await;
    let held = hold(&*store, &a, "d").await;
    assert!(is_kept(&keep(&*store, &a, &held).await));
    let before = counted(&server, past, RENEWED);

    // Cuts the peer connections, so that no message of the election waits for the frozen member.
    (0..members).for_each(|member| server.cut_peers(member));
    server.pause(past).unwrap();
    others.iter().for_each(|member| server.restore_peers(*member).unwrap());
    let leads = |member: &usize| counted(&server, *member, "etcd_server_is_leader") == 1;
    until("another leader", || async { others.iter().any(leads) }).await;
    let by_others = || others.iter().map(|member| counted(&server, *member, RENEWED)).sum::<u64>();
    let before_others = by_others();
    others.iter().for_each(|member| server.pause(*member).unwrap());
    let keeping = tokio::spawn(async move { keep(&*store, &a, &held).await });
    server.resume(past).unwrap();
    until("the renewal", || async { counted(&server, past, RENEWED) > before }).await;
    others.iter().for_each(|member| server.resume(*member).unwrap());
    assert!(is_kept(&keeping.await.unwrap()));
    assert!(by_others() > before_others, "only a leader of the past has extended the lease");
}

/// A single member knows that nothing was written. With three, the answering member may be behind,
/// so the session is read every time.
#[tokio::test(flavor = "multi_thread")]
async fn a_keep_alive_looks_unless_one_member_has_written_nothing() {
    for members in [1, 3] {
        let server = start(EtcdOptions { members, ..EtcdOptions::default() });
        let store = open(&server).await;
        let a = join(&*store, "a").await;
        let held = hold(&*store, &a, "d").await;
        // The first opens the stream, the second lists the members.
        for _ in 0..2 {
            assert!(is_kept(&keep(&*store, &a, &held).await));
        }
        let before = reads(&server, members);
        for _ in 0..10 {
            assert!(is_kept(&keep(&*store, &a, &held).await));
        }
        let looks = reads(&server, members) - before;
        match members {
            1 => assert_eq!(looks, 0),
            _ => assert!(looks >= 10, "{looks} looks"),
        }
        // After any write, the session is read again.
        server.etcdctl(&["put", "elsewhere", "x"]).unwrap();
        let before = reads(&server, members);
        assert!(is_kept(&keep(&*store, &a, &held).await));
        assert!(reads(&server, members) > before);
        let other = open(&server).await;
        other.release(&a, std::slice::from_ref(&held), &reason()).await.unwrap();
        assert!(!is_kept(&keep(&*store, &a, &held).await));
    }
}
