//! Rewinding and moving checkpoints, by an operator who may be killed at any moment.

mod again;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::store::{Checkpoint, Committed};
use tenure_core::{
    Clock, Code, Document, DutyKey, Hold, InstanceId, LocalInstant, Reason, Store, StoreError, Ttl,
    Version,
};
use tenure_store::Memory;
use tenure_store::conformance::wrap::{CallBudget, Fault, Flaky, Mortal, Op};
use tenure_store::signing::{Keyring, Sealed, SignatureVerdict, Signing, verify};
use tenure_store::transfer::{Arrival, Move, MoveOutcome, Operator, OperatorSession, rewind};

use crate::player::{LONG, Player, duty, unique};

/// A clock that only the test advances.
#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> LocalInstant {
        LocalInstant::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

impl HandClock {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

fn keys() -> Keyring {
    Keyring::parse(&format!("k sign {}", "5e".repeat(32))).unwrap()
}

/// Two stores and their common clock.
struct Stores {
    clock: Arc<HandClock>,
    from: Arc<dyn Store>,
    to: Arc<dyn Store>,
}

const TTL: Duration = Duration::from_secs(10);

fn operator(force: bool) -> Operator {
    Operator {
        instance: InstanceId::new(format!("operator-{}", unique())).unwrap(),
        ttl: Ttl::new(TTL).unwrap(),
        reason: Reason::new("checkpoint move").unwrap(),
        force,
        entropy: || u128::from(unique()) << 80,
    }
}

fn session(store: &Arc<dyn Store>, name: &str, force: bool) -> OperatorSession {
    OperatorSession::new(store.clone(), Signing::Require(keys()), name.to_owned(), operator(force))
}

/// Opens a store as a worker does.
fn worker(store: &Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Sealed::new(store.clone(), Signing::Require(keys())))
}

async fn load(store: &Arc<dyn Store>, duty: &DutyKey) -> Result<Option<Checkpoint>, StoreError> {
    let duties = std::slice::from_ref(duty);
    Ok(worker(store).load(duties).await?.remove(0))
}

fn same(duty: DutyKey) -> impl Fn(&[Vec<u8>]) -> Result<Vec<Arrival>, StoreError> + Sync {
    move |all| Ok(vec![Arrival { duty: duty.clone(), source: 0, payload: all[0].clone() }])
}

/// Takes the least payload: here payloads are letters.
fn least(all: &[Vec<u8>]) -> Result<Vec<Arrival>, StoreError> {
    let source = (0..all.len()).min_by_key(|n| &all[*n]).unwrap();
    Ok(vec![Arrival { duty: duty("all"), source, payload: all[source].clone() }])
}

impl Stores {
    fn new() -> Self {
        let clock = Arc::new(HandClock::default());
        let memory = || Arc::new(Memory::new(clock.clone()));
        Self { from: memory(), to: memory(), clock: clock.clone() }
    }

    /// A worker holds `id` in the old store and has committed `text` as its second version.
    async fn work(&self, id: &str, text: &str) -> (Player, Hold) {
        let store = worker(&self.from);
        let player = Player::join(&store, "worker", LONG).await;
        // The old store has granted the duty several times.
        for _ in 0..5 {
            let hold = player.hold(id).await;
            player.release(&hold).await;
        }
        let hold = player.hold(id).await;
        player.commit(&hold, 0, "old").await;
        let saved = player.commit(&hold, 1, text).await;
        assert_eq!(saved, Committed::Saved(Version::new(2).unwrap()));
        (player, hold)
    }

    async fn free(&self, id: &str, text: &str) {
        let (player, hold) = self.work(id, text).await;
        player.release(&hold).await;
    }

    async fn run(&self, force: bool) -> Result<MoveOutcome, StoreError> {
        let (mut from, mut to) = (session(&self.from, "F", force), session(&self.to, "T", force));
        let convert = same(duty("a"));
        let outcome = Move::new(&mut from, &mut to).run(&[duty("a")], &duty("a"), &convert).await;
        from.close().await;
        to.close().await;
        outcome
    }

    /// Returns the report in the other store.
    async fn report(&self) -> Option<String> {
        let found = self.to.reports(&[duty("a")]).await.unwrap().remove(0)?;
        Some(String::from_utf8(found.document.as_bytes().to_vec()).unwrap())
    }

    /// The checkpoint is valid on one side at most. It is valid on none only while the old side
    /// reports that it is being moved.
    async fn one_side_at_most(&self, sources: &[DutyKey], target: &DutyKey) -> bool {
        let there = load(&self.to, target).await.unwrap().is_some();
        for source in sources {
            match load(&self.from, source).await {
                Ok(here) => assert!(here.is_some() && !there, "good on both sides"),
                Err(error) => {
                    assert_eq!(error.code(), Code::Moved);
                    let resumable = error.to_string().contains("is being moved to T");
                    assert!(there || resumable, "good on no side: {error}");
                }
            }
        }
        there
    }
}

#[tokio::test]
async fn a_move_fences_the_old_side_and_goes_on_above_its_epoch() {
    let stores = Stores::new();
    let (player, hold) = stores.work("a", "x").await;
    assert_eq!(stores.run(false).await.unwrap_err().code(), Code::Held);
    assert_eq!(load(&stores.from, &duty("a")).await.unwrap().unwrap().version.get(), 2);

    assert_eq!(stores.run(true).await.unwrap(), MoveOutcome::Moved);
    let late = player.try_commit(&hold, 2, "late").await;
    assert!(matches!(late, Ok(Committed::Fenced { .. })), "{late:?}");
    assert!(!player.keeps(&hold).await);
    let moved = load(&stores.to, &duty("a")).await.unwrap().unwrap();
    assert_eq!(moved.document, Document::new(*b"x").unwrap());
    assert!(moved.epoch > hold.epoch);
    let error = load(&stores.from, &duty("a")).await.unwrap_err();
    assert!(error.to_string().contains("g/a was moved to T"), "{error}");
    assert_eq!(stores.run(false).await.unwrap(), MoveOutcome::AlreadyMoved);

    // The arrived checkpoint is signed as a successor of the moved one.
    let ring = stores.from.history(&duty("a")).await.unwrap();
    let verdicts = verify(&keys(), &duty("a"), ring.first(), &ring);
    assert!(verdicts.iter().all(|(_, inspected)| inspected.verdict == SignatureVerdict::Good));
    let live = verdicts.iter().find(|(old, _)| old.version.get() == 2).unwrap();
    let arrived = stores.to.history(&duty("a")).await.unwrap();
    let arrived = verify(&keys(), &duty("a"), None, &arrived).remove(0).1;
    assert_eq!(arrived.seal.prev, live.1.seal.signed.as_ref().map(|(_, mac)| *mac));
}

#[tokio::test]
async fn a_move_that_is_killed_at_any_step_can_be_run_again() {
    for last_happens in [false, true] {
        let mut steps = 0;
        loop {
            let stores = Stores::new();
            let (player, hold) = stores.work("a", "x").await;
            player.report(&hold, "report").await;
            player.release(&hold).await;
            let life = CallBudget::new(steps, last_happens);
            let mortal = |store: &Arc<dyn Store>| -> Arc<dyn Store> {
                Arc::new(Mortal::new(store.clone(), life.clone()))
            };
            let doomed = Stores {
                clock: stores.clock.clone(),
                from: mortal(&stores.from),
                to: mortal(&stores.to),
            };
            let done = life.live(doomed.run(false)).await;
            stores.one_side_at_most(&[duty("a")], &duty("a")).await;
            stores.clock.advance(TTL);
            let again = stores.run(false).await.unwrap();
            assert!(matches!(again, MoveOutcome::Moved | MoveOutcome::AlreadyMoved), "{again:?}");
            assert!(stores.one_side_at_most(&[duty("a")], &duty("a")).await);
            let moved = load(&stores.to, &duty("a")).await.unwrap().unwrap();
            assert_eq!(moved.document, Document::new(*b"x").unwrap());
            assert!(moved.epoch > hold.epoch);
            assert_eq!(stores.report().await.as_deref(), Some("report"));
            if let Some(outcome) = done {
                assert_eq!(outcome.unwrap(), MoveOutcome::Moved);
                break;
            }
            steps += 1;
        }
        assert!(steps >= 15, "only {steps} steps were seen");
    }
}

/// The same with three shards, the least of which becomes one cursor.
#[tokio::test]
async fn shards_are_put_together_by_their_least_however_often_it_is_killed() {
    let shards = [duty("s0"), duty("s1"), duty("s2")];
    let mut steps = 0;
    loop {
        let stores = Stores::new();
        for (id, text) in [("s0", "m"), ("s1", "c"), ("s2", "t")] {
            stores.free(id, text).await;
        }
        let life = CallBudget::new(steps, steps % 2 == 0);
        let mortal = |store: &Arc<dyn Store>| -> Arc<dyn Store> {
            Arc::new(Mortal::new(store.clone(), life.clone()))
        };
        let (mut from, mut to) =
            (session(&mortal(&stores.from), "F", false), session(&mortal(&stores.to), "T", false));
        let mut doomed = Move::new(&mut from, &mut to);
        let done = life.live(doomed.run(&shards, &duty("all"), &least)).await;
        stores.one_side_at_most(&shards, &duty("all")).await;
        stores.clock.advance(TTL);
        let (mut from, mut to) =
            (session(&stores.from, "F", false), session(&stores.to, "T", false));
        Move::new(&mut from, &mut to).run(&shards, &duty("all"), &least).await.unwrap();
        assert!(stores.one_side_at_most(&shards, &duty("all")).await);
        let moved = load(&stores.to, &duty("all")).await.unwrap().unwrap();
        assert_eq!(moved.document, Document::new(*b"c").unwrap());
        if done.is_some() {
            break;
        }
        steps += 1;
    }
    assert!(steps >= 30, "only {steps} steps were seen");
}

#[tokio::test]
async fn what_the_other_store_has_is_not_overwritten_unless_somebody_says_so() {
    let stores = Stores::new();
    stores.free("a", "x").await;
    let there = worker(&stores.to);
    let player = Player::join(&there, "other", LONG).await;
    let hold = player.hold("a").await;
    player.commit(&hold, 0, "theirs").await;
    player.release(&hold).await;

    let error = stores.run(false).await.unwrap_err();
    assert_eq!(error.code(), Code::Occupied);
    assert_eq!(load(&stores.from, &duty("a")).await.unwrap().unwrap().version.get(), 2);
    assert_eq!(stores.run(true).await.unwrap(), MoveOutcome::Moved);
    let moved = load(&stores.to, &duty("a")).await.unwrap().unwrap();
    assert_eq!(moved.document, Document::new(*b"x").unwrap());
    let ring = stores.to.history(&duty("a")).await.unwrap();
    let good = verify(&keys(), &duty("a"), ring.first(), &ring);
    assert!(
        good.iter().all(|(_, inspected)| inspected.verdict == SignatureVerdict::Good),
        "{good:?}"
    );
}

/// Another worker starts from nothing in the other store while the move is incomplete.
#[tokio::test]
async fn a_stranger_s_checkpoint_is_not_taken_for_the_move_s_own() {
    let stores = Stores::new();
    stores.free("a", "x").await;
    // Opening both, claiming both, reading both, marking the source: then killed.
    let mut steps = 1;
    while load(&stores.from, &duty("a")).await.is_ok() {
        let life = CallBudget::new(steps, true);
        let mortal = |store: &Arc<dyn Store>| -> Arc<dyn Store> {
            Arc::new(Mortal::new(store.clone(), life.clone()))
        };
        let (from, to) = (mortal(&stores.from), mortal(&stores.to));
        let doomed = Stores { clock: stores.clock.clone(), from, to };
        assert!(life.live(doomed.run(false)).await.is_none());
        stores.clock.advance(TTL);
        steps += 1;
    }
    let there = worker(&stores.to);
    let player = Player::join(&there, "stranger", LONG).await;
    let hold = player.hold("a").await;
    player.commit(&hold, 0, "from nothing").await;
    player.release(&hold).await;
    assert_eq!(stores.run(false).await.unwrap_err().code(), Code::Occupied);
    assert_eq!(stores.run(true).await.unwrap(), MoveOutcome::Moved);
    let moved = load(&stores.to, &duty("a")).await.unwrap().unwrap();
    assert_eq!(moved.document, Document::new(*b"x").unwrap());
}

#[tokio::test]
async fn a_move_back_ends_where_it_began() {
    let stores = Stores::new();
    stores.free("a", "x").await;
    stores.run(false).await.unwrap();
    let (mut from, mut to) = (session(&stores.to, "T", false), session(&stores.from, "F", false));
    let convert = same(duty("a"));
    let mut back = Move::new(&mut from, &mut to);
    assert_eq!(back.run(&[duty("a")], &duty("a"), &convert).await.unwrap(), MoveOutcome::Moved);
    let home = load(&stores.from, &duty("a")).await.unwrap().unwrap();
    assert_eq!(home.document, Document::new(*b"x").unwrap());
    let ring = stores.from.history(&duty("a")).await.unwrap();
    let good = verify(&keys(), &duty("a"), ring.first(), &ring);
    assert!(
        good.iter().all(|(_, inspected)| inspected.verdict == SignatureVerdict::Good),
        "{good:?}"
    );
    assert_eq!(load(&stores.to, &duty("a")).await.unwrap_err().code(), Code::Moved);
}

#[tokio::test]
async fn a_duty_without_a_checkpoint_takes_its_epoch_and_its_report_along() {
    let stores = Stores::new();
    let player = Player::join(&worker(&stores.from), "worker", LONG).await;
    for _ in 0..5 {
        let hold = player.hold("a").await;
        player.release(&hold).await;
    }
    let hold = player.hold("a").await;
    player.release(&hold).await;
    player.report(&player.hold("a").await, "report").await;
    assert_eq!(stores.run(true).await.unwrap(), MoveOutcome::OnlyEpoch);
    assert_eq!(stores.report().await.as_deref(), Some("report"));
    let next = Player::join(&worker(&stores.to), "next", LONG).await;
    assert!(next.hold("a").await.epoch > hold.epoch);
}

#[tokio::test]
async fn a_rewind_is_a_new_version_with_an_old_document() {
    let stores = Stores::new();
    let (player, hold) = stores.work("a", "x").await;
    let to = Version::new(1).unwrap();
    let refused = rewind(&mut session(&stores.from, "F", false), &duty("a"), to).await;
    assert_eq!(refused.unwrap_err().code(), Code::Held);

    // The answer to the commit is lost: the operator reads back.
    let flaky = Flaky::planned(stores.from.clone()).on(Op::Commit, Fault::HappenedButLost);
    let flaky: Arc<dyn Store> = Arc::new(flaky);
    let rewound = rewind(&mut session(&flaky, "F", true), &duty("a"), to).await.unwrap();
    assert_eq!((rewound.before.get(), rewound.now.get()), (2, 3));
    let now = load(&stores.from, &duty("a")).await.unwrap().unwrap();
    assert_eq!(now.document, Document::new(*b"old").unwrap());
    let late = player.try_commit(&hold, 3, "late").await;
    assert!(matches!(late, Ok(Committed::Fenced { .. })), "{late:?}");
    let ring = stores.from.history(&duty("a")).await.unwrap();
    let good = verify(&keys(), &duty("a"), ring.first(), &ring);
    assert!(
        good.iter().all(|(_, inspected)| inspected.verdict == SignatureVerdict::Good),
        "{good:?}"
    );

    let never = Version::new(9).unwrap();
    let gone = rewind(&mut session(&stores.from, "F", false), &duty("a"), never).await;
    assert_eq!(gone.unwrap_err().code(), Code::BadInput);
}
