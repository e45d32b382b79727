//! One task per duty: how it begins and how it ends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::observe::Observer;
use tenure::{Change, Duties, Epoch, GroupName, Guard};
use tokio::sync::mpsc;

use super::player::*;

/// Sends its epoch when it is dropped.
struct Dropped(mpsc::UnboundedSender<Epoch>, Epoch);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(self.1);
    }
}

#[tokio::test]
async fn work_that_fails_or_panics_is_tried_again_under_a_new_epoch() {
    let (place, witness) = (Place::memory(), Witness::new());
    let join = join(&place, &group(), standby()).observer(witness.clone());
    let membership = join.start().await.unwrap();
    let (leaver, tries) = (membership.leaver(), Arc::new(AtomicU32::new(0)));
    let (sender, mut epochs) = mpsc::unbounded_channel();
    let running = membership.run(move |guard: Guard| {
        let attempt = tries.fetch_add(1, Ordering::SeqCst);
        sender.send(guard.epoch()).unwrap();
        let leaver = leaver.clone();
        async move {
            match attempt {
                0 => Err("on purpose"),
                1 => panic!("on purpose"),
                _ => {
                    leaver.leave();
                    guard.stopping().await;
                    Ok(())
                }
            }
        }
    });
    soon("the end", running).await.unwrap();
    let mut seen = Vec::new();
    while let Ok(epoch) = epochs.try_recv() {
        seen.push(epoch);
    }
    assert_eq!(seen.len(), 3);
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    let released = |why| {
        let records = witness.records.lock().unwrap();
        let of = records.iter().filter(|record| record.change == Change::Released);
        of.filter(|record| record.reason == why).count()
    };
    assert_eq!((released("failed"), released("leave")), (2, 1));
}

/// Observer that blocks the thread that renews until the test releases it.
#[derive(Debug, Default)]
struct Block(Mutex<Option<std::sync::mpsc::Receiver<()>>>);

impl Observer for Block {
    fn renewed(&self, _: &GroupName, _: Duration) {
        let until = self.0.lock().unwrap().take();
        if let Some(until) = until {
            // It ends when the test drops the other side.
            let _ = until.recv();
        }
    }
}

/// Without any notification the deadline alone drops the work, before another member has the duty.
#[tokio::test]
async fn work_is_dropped_in_time_also_when_the_thread_that_renews_is_stuck() {
    let (place, group, block) = (Place::memory(), group(), Arc::new(Block::default()));
    let first = join(&place, &group, standby()).observer(block.clone()).start().await.unwrap();
    let leaver = first.leaver();
    let (sender, mut dropped) = mpsc::unbounded_channel();
    let (begins, mut begun) = mpsc::unbounded_channel();
    let running = tokio::spawn(first.run(move |guard: Guard| {
        begins.send(()).unwrap();
        let dropped = Dropped(sender.clone(), guard.epoch());
        async move {
            let _dropped = dropped;
            std::future::pending::<Result<(), std::convert::Infallible>>().await
        }
    }));
    soon("the work", begun.recv()).await.unwrap();
    let mut second = join(&place, &group, standby()).start().await.unwrap();
    let (unblock, until) = std::sync::mpsc::channel();
    *block.0.lock().unwrap() = Some(until);

    let epoch = tokio::select! {
        biased;
        guard = assigned(&mut second) => panic!("two at a time: {guard:?}"),
        epoch = dropped.recv() => epoch.unwrap(),
    };
    let guard = assigned(&mut second).await;
    assert!(guard.epoch() > epoch);
    assert!(block.0.lock().unwrap().is_none(), "it was stuck");
    leaver.leave();
    drop(unblock);
    soon("the end", running).await.unwrap().unwrap();
    drop(guard);
    second.leave().await.unwrap();
}

#[tokio::test]
async fn work_that_does_not_stop_is_dropped_and_the_membership_ends() {
    everywhere(|place| async move {
        let join = join(&place, &group(), Duties::Shards(2));
        let membership = join.drain(Duration::from_millis(100)).start().await.unwrap();
        let leaver = membership.leaver();
        let (sender, mut dropped) = mpsc::unbounded_channel();
        let started = Arc::new(AtomicU32::new(0));
        let running = membership.run(move |guard: Guard| {
            let dropped = Dropped(sender.clone(), guard.epoch());
            if started.fetch_add(1, Ordering::SeqCst) == 1 {
                leaver.leave();
            }
            async move {
                let _dropped = dropped;
                std::future::pending::<Result<(), std::convert::Infallible>>().await
            }
        });
        soon("the end", running).await.unwrap();
        for _ in 0..2 {
            soon("the drop", dropped.recv()).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn work_that_makes_no_progress_is_taken_away() {
    let (place, witness) = (Place::memory(), Witness::new());
    let join = join(&place, &group(), standby()).observer(witness.clone());
    let join = join.progress(Duration::from_millis(300));
    let mut membership = join.start().await.unwrap();
    let guard = assigned(&mut membership).await;
    let revoked = witness.saw(Change::Revoked, 0).await;
    assert_eq!(revoked.reason, "no progress");
    soon("the loss", guard.lost()).await;
}

/// A resource has seen a newer epoch than the store knows: the next hold is above it.
#[tokio::test]
async fn a_fenced_effect_brings_a_hold_above_the_newest_epoch() {
    everywhere(|place| async move {
        let mut membership = join(&place, &group(), standby()).start().await.unwrap();
        let guard = assigned(&mut membership).await;
        let newest = Epoch::new(guard.epoch().get() + 1_000).unwrap();
        guard.fenced(newest);
        assert!(guard.check().is_err());
        drop(guard);
        assert!(assigned(&mut membership).await.epoch() > newest, "{}", place.name);
        membership.leave().await.unwrap();
    })
    .await;
}
