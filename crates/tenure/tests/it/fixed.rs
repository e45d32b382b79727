//! Partitions without a store.

use std::sync::Arc;
use std::time::Duration;

use tenure::fixed::Partitions;
use tenure::store::BootClock;
use tenure::{Code, Document, Epoch, Event, Lost};

use super::player::*;

#[tokio::test]
async fn every_partition_is_assigned_and_stands_until_it_is_left() {
    let partitions = Partitions::parse(Some("0,2"), None, None).unwrap();
    let drain = Duration::from_secs(3600);
    let mut membership = partitions.join(&group(), Arc::new(BootClock), drain).unwrap();
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
    let mut membership = partitions.join(&group(), Arc::new(BootClock), drain).unwrap();
    let guard = assigned(&mut membership).await;
    membership.leaver().drain();
    soon("the loss", guard.lost()).await;
    assert_eq!(guard.check(), Err(Lost::Revoked));
    ended(&mut membership).await;
    assert!(!matches!(membership.next().await, Some(Event::Assigned(_))));
}
