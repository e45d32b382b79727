//! Guards, on a clock that only the test moves.

use std::sync::atomic::AtomicU64;
use std::task::Poll;

use tenure_core::{Clock, Mark, Nonce, Session, Ttl};
use tokio::sync::mpsc;

use super::*;
use crate::observe::TracingObserver;

const TTL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Hand {
    fn set(&self, millis: u64) {
        self.0.store(millis * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> LocalInstant {
        LocalInstant::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

struct Scene {
    clock: Arc<Hand>,
    guard: Guard,
    commands: mpsc::UnboundedReceiver<EngineEvent>,
}

/// Creates a hold that was granted at zero: with a TTL of 10 s it is valid for 8.5 s.
fn scene(progress: Option<Duration>) -> Scene {
    let (handle, commands) = DriverHandle::new(Arc::new(TracingObserver));
    let clock = Arc::new(Hand::default());
    let ttl = Ttl::new(TTL).unwrap();
    let (duty, instance) = (DutyKey::new("g", "d").unwrap(), InstanceId::new("i").unwrap());
    let nonce = Nonce::from_entropy(1);
    let session = Session { group: duty.group.clone(), instance: instance.clone(), nonce, ttl };
    let epoch = Epoch::new(7).unwrap();
    let hold = Hold { duty, epoch, instance, nonce, mark: Mark::default() };
    let deadline = ttl.deadline(clock.now()).at();
    let dial = Arc::clone(&clock) as Arc<dyn Clock>;
    let state = Arc::new(HoldState::new(hold, session, deadline, dial, progress));
    Scene { clock, guard: Guard::new(state, handle), commands }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_guard_that_nobody_could_tell_anything_is_lost_at_its_deadline() {
    let Scene { clock, guard, .. } = scene(None);
    clock.set(8_499);
    assert_eq!(guard.check(), Ok(millis(1)));
    clock.set(8_500);
    assert_eq!(guard.check(), Err(HoldLost::Deadline));
}

#[test]
fn a_call_fits_with_its_timeout_and_the_margin() {
    let Scene { clock, guard, .. } = scene(None);
    clock.set(5_000);
    // 3.5 s are left, and half a second is the margin.
    assert_eq!(guard.check_for(millis(2_999)), Ok(()));
    assert_eq!(guard.check_for(millis(3_000)), Err(HoldLost::Deadline));
    assert_eq!(guard.check_for(Duration::MAX), Err(HoldLost::Deadline));
}

#[test]
fn an_extension_moves_the_deadline_and_lifts_a_suspension() {
    let Scene { clock, guard, .. } = scene(None);
    let state = Arc::clone(guard.state());
    clock.set(4_000);
    state.suspend();
    assert_eq!(guard.check(), Err(HoldLost::Unconfirmed));
    state.extend(state.session.ttl.deadline(clock.now()));
    assert_eq!(guard.check(), Ok(millis(8_500)));
    assert_eq!(guard.deadline(), clock.now().plus(millis(8_500)));
}

#[test]
fn what_was_lost_never_comes_back() {
    let Scene { clock, guard, .. } = scene(None);
    let state = Arc::clone(guard.state());
    assert!(state.lose());
    state.extend(state.session.ttl.deadline(clock.now()));
    assert_eq!(guard.check(), Err(HoldLost::Revoked));
    assert!(!state.lose(), "it is lost once");
}

#[test]
fn draining_work_may_still_act() {
    let Scene { guard, .. } = scene(None);
    guard.state().drain();
    assert!(guard.draining());
    assert!(guard.check().is_ok());
}

#[test]
fn the_last_handle_tells_the_end_once() {
    let Scene { guard, mut commands, .. } = scene(None);
    let other = guard.clone();
    drop(guard);
    assert!(commands.try_recv().is_err());
    drop(other);
    assert!(matches!(commands.try_recv(), Ok(EngineEvent::Stopped { how: WorkOutcome::Done, .. })));
    assert!(commands.try_recv().is_err());

    let Scene { guard, mut commands, .. } = scene(None);
    guard.finished(WorkOutcome::Failed);
    assert_eq!(guard.check(), Err(HoldLost::Revoked), "nothing runs any more");
    drop(guard);
    assert!(matches!(
        commands.try_recv(),
        Ok(EngineEvent::Stopped { how: WorkOutcome::Failed, .. })
    ));
    assert!(commands.try_recv().is_err());
}

#[test]
fn work_that_was_asked_has_ended_as_asked_and_a_panic_as_failed() {
    let Scene { guard, mut commands, .. } = scene(None);
    guard.state().drain();
    drop(guard);
    assert!(matches!(
        commands.try_recv(),
        Ok(EngineEvent::Stopped { how: WorkOutcome::Asked, .. })
    ));

    let Scene { guard, mut commands, .. } = scene(None);
    let work = std::thread::spawn(move || {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(work.join().is_err());
    assert!(matches!(
        commands.try_recv(),
        Ok(EngineEvent::Stopped { how: WorkOutcome::Failed, .. })
    ));
}

#[test]
fn progress_is_told_now_and_then_and_only_where_it_is_asked_for() {
    let Scene { guard, mut commands, .. } = scene(None);
    guard.progress();
    assert!(commands.try_recv().is_err());

    let Scene { clock, guard, mut commands } = scene(Some(millis(1_000)));
    for now in [1_000, 1_999, 2_000] {
        clock.set(now);
        guard.progress();
    }
    assert!(matches!(commands.try_recv(), Ok(EngineEvent::Progress { .. })));
    assert!(matches!(commands.try_recv(), Ok(EngineEvent::Progress { .. })));
    assert!(commands.try_recv().is_err());
}

#[test]
fn a_fenced_guard_allows_nothing_and_tells_once() {
    let Scene { guard, mut commands, .. } = scene(None);
    let newest = Epoch::new(9).unwrap();
    guard.fenced(newest);
    guard.fenced(newest);
    assert_eq!(guard.check(), Err(HoldLost::Revoked));
    assert!(
        matches!(commands.try_recv(), Ok(EngineEvent::Fenced { newest: n, .. }) if n == newest)
    );
    assert!(commands.try_recv().is_err());
}

/// Waits with a limit, so that a test fails instead of hanging.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TTL, future).await.expect("waited in vain")
}

/// No notification arrives.
#[tokio::test]
async fn who_waits_is_woken_by_the_deadline_alone() {
    let Scene { clock, guard, .. } = scene(None);
    let waits = |guard: Guard| async move {
        guard.lost().await;
        guard.stopping().await;
        guard.confirmed().await
    };
    guard.state().suspend();
    clock.set(8_499);
    let mut waiting = tokio::spawn(waits(guard.clone()));
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("a millisecond is left"),
        () = tokio::task::yield_now() => {}
    }
    clock.set(8_500);
    assert_eq!(soon(waiting).await.unwrap(), Err(HoldLost::Deadline));
}

#[tokio::test]
async fn a_deadline_that_moves_is_waited_for_where_it_is() {
    let Scene { clock, guard, .. } = scene(None);
    clock.set(8_499);
    let mut lost = std::pin::pin!(guard.lost());
    assert!(std::future::poll_fn(|cx| Poll::Ready(lost.as_mut().poll(cx).is_pending())).await);
    guard.state().extend(guard.state().session.ttl.deadline(clock.now()));
    clock.set(8_500);
    // Longer than the time that was left before the deadline moved.
    let early = tokio::time::timeout(millis(20), &mut lost).await;
    assert!(early.is_err(), "it stands until 16,999");
    // Its timer is set for 8.5 s from now; a change makes it read the clock.
    clock.set(16_999);
    guard.state().drain();
    soon(lost).await;
}

#[test]
fn what_was_lost_is_never_taken() {
    let Scene { guard, .. } = scene(None);
    guard.state().lose();
    assert!(!guard.state().take());
    assert!(!guard.state().is_taken(), "user code hears of no loss of what it never had");
}

#[tokio::test]
async fn who_waits_is_woken() {
    let Scene { guard, .. } = scene(None);
    let (asked, gone) = (guard.clone(), guard.clone());
    let waiting = tokio::spawn(async move {
        asked.stopping().await;
        gone.lost().await;
    });
    guard.state().drain();
    guard.state().lose();
    waiting.await.unwrap();
    assert_eq!(guard.confirmed().await, Err(HoldLost::Revoked));
}
