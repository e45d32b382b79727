//! Partitions without a store.

use std::sync::Arc;
use std::time::Duration;

use tenure::fixed::Partitions;
use tenure::store::BootClock;
use tenure::{Change, Code, Document, Epoch, Guard, HoldLost, Membership, MembershipEvent};
use tokio::sync::mpsc;

use super::player::*;

fn join_partitions(parts: &Partitions, drain: Duration, witness: Arc<Witness>) -> Membership {
    parts.join(&group(), Arc::new(BootClock), drain, witness).unwrap()
}

#[tokio::test]
async fn every_partition_is_assigned_and_stands_until_it_is_left() {
    let partitions = Partitions::parse(Some("0,2"), None, None).unwrap();
    let drain = Duration::from_secs(3600);
    let mut membership = join_partitions(&partitions, drain, Witness::new());
    let guards = [assigned(&mut membership).await, assigned(&mut membership).await];
    assert_eq!(guards.each_ref().map(|guard| guard.duty().id.as_str()), ["0", "2"]);
    assert!(guards.iter().all(|guard| guard.epoch() == Epoch::ZERO));
    assert!(guards.iter().all(|guard| guard.check_for(Duration::from_secs(9_999_999)).is_ok()));
    let refused = guards[0].commit(Document::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Absent);

    membership.leaver().leave();
    for guard in &guards {
        soon("the wish to stop", guard.stopping()).await;
        assert!(guard.check().is_ok(), "work may come to its end");
    }
    drop(guards);
    ended(&mut membership).await;
}

#[tokio::test]
async fn work_that_does_not_stop_is_cut_off_after_its_time() {
    let partitions = Partitions::parse(None, Some("1"), Some("2")).unwrap();
    let drain = Duration::from_millis(50);
    let mut membership = join_partitions(&partitions, drain, Witness::new());
    let guard = assigned(&mut membership).await;
    membership.leaver().drain();
    soon("the loss", guard.lost()).await;
    assert_eq!(guard.check(), Err(HoldLost::Revoked));
    ended(&mut membership).await;
    assert!(!matches!(membership.next().await, Some(MembershipEvent::Assigned(_))));
}

/// Partition 0 returns an error, 1 panics, and 2 finishes; no other process could take over.
#[tokio::test]
async fn work_that_fails_is_begun_again_and_work_that_is_done_is_not() {
    let partitions = Partitions::parse(Some("0,1,2"), None, None).unwrap();
    let witness = Witness::new();
    let membership = join_partitions(&partitions, Duration::from_secs(3600), witness.clone());
    let leaver = membership.leaver();
    let (sender, mut begun) = mpsc::unbounded_channel();
    let running = tokio::spawn(membership.run(move |guard: Guard| {
        let (sender, part) = (sender.clone(), guard.duty().id.to_string());
        async move {
            let (go, may_fail) = tokio::sync::oneshot::channel();
            sender.send((part.clone(), go)).unwrap();
            tokio::select! {
                biased;
                () = guard.stopping() => return Ok(()),
                failing = may_fail => failing.unwrap(),
            }
            match part.as_str() {
                "0" => Err("on purpose"),
                "1" => panic!("on purpose"),
                _ => Ok(()),
            }
        }
    }));
    let mut seen = Vec::new();
    let mut waiting = Vec::new();
    while seen.len() < 5 {
        let (part, go) = soon("work that begins", begun.recv()).await.unwrap();
        if seen.contains(&part) {
            waiting.push(go);
        } else {
            go.send(()).unwrap();
        }
        seen.push(part);
    }
    leaver.leave();
    soon("the end", running).await.unwrap().unwrap();
    seen.sort();
    assert_eq!(seen, ["0", "0", "1", "1", "2"]);
    let records = witness.records.lock().unwrap();
    let count = |change, why| {
        records.iter().filter(|record| record.change == change && record.reason == why).count()
    };
    assert_eq!(count(Change::Acquired, "fixed"), 5);
    assert_eq!((count(Change::Released, "failed"), count(Change::Released, "done")), (2, 3));
}
