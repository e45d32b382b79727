//! Checkpoints taken back and taken elsewhere, by an operator who may be killed at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::store::{Checkpoint, Committed};
use tenure_core::{
    Clock, Code, Document, DutyKey, Hold, InstanceId, LocalInstant, Reason, Store, StoreError, Ttl,
    Version,
};
use tenure_store::Memory;
use tenure_store::signing::{Keyring, Sealed, Signing, Verdict, verify};
use tenure_store::transfer::{Arrival, Desk, Move, Operator, Outcome, rewind};
use tenure_store::wrap::{Fault, Flaky, Hooked, Life, Mortal, Op};

use crate::player::{LONG, Player, duty, unique};

/// Time that only a test moves.
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

/// Two stores and the time that passes in both.
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
        entropy: || u128::from(unique()) << 70,
    }
}

fn desk(store: &Arc<dyn Store>, name: &str, force: bool) -> Desk {
    Desk::new(store.clone(), Signing::Require(keys()), name.to_owned(), operator(force))
}

/// As a worker sees a store.
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

/// The one that sorts first: here payloads are letters.
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

    /// Somebody works on `id` in the old store and has committed `text` twice.
    async fn work(&self, id: &str, text: &str) -> (Player, Hold) {
        let store = worker(&self.from);
        let player = Player::join(&store, "worker", LONG).await;
        // The old store has seen a few holders.
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

    async fn run(&self, force: bool) -> Result<Outcome, StoreError> {
        let (mut from, mut to) = (desk(&self.from, "F", force), desk(&self.to, "T", force));
        let convert = same(duty("a"));
        let outcome = Move::new(&mut from, &mut to).run(&[duty("a")], &duty("a"), &convert).await;
        from.close().await;
        to.close().await;
        outcome
    }

    /// Good on one side at most; on none only while the old side says that it is being moved.
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

    assert_eq!(stores.run(true).await.unwrap(), Outcome::Moved);
    let late = player.try_commit(&hold, 2, "late").await;
    assert!(matches!(late, Ok(Committed::Fenced { .. })), "{late:?}");
    assert!(!player.keeps(&hold).await);
    let moved = load(&stores.to, &duty("a")).await.unwrap().unwrap();
    assert_eq!(moved.document, Document::new(*b"x").unwrap());
    assert!(moved.epoch > hold.epoch);
    let error = load(&stores.from, &duty("a")).await.unwrap_err();
    assert!(error.to_string().contains("g/a was moved to T"), "{error}");
    assert_eq!(stores.run(false).await.unwrap(), Outcome::AlreadyMoved);

    // What arrived is signed upon what it was.
    let ring = stores.from.history(&duty("a")).await.unwrap();
    let verdicts = verify(&keys(), &duty("a"), ring.first(), &ring);
    assert!(verdicts.iter().all(|(_, inspected)| inspected.verdict == Verdict::Good));
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
            player.release(&hold).await;
            let life = Life::new(steps, last_happens);
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
            assert!(matches!(again, Outcome::Moved | Outcome::AlreadyMoved), "{again:?}");
            assert!(stores.one_side_at_most(&[duty("a")], &duty("a")).await);
            let moved = load(&stores.to, &duty("a")).await.unwrap().unwrap();
            assert_eq!(moved.document, Document::new(*b"x").unwrap());
            assert!(moved.epoch > hold.epoch);
            if let Some(outcome) = done {
                assert_eq!(outcome.unwrap(), Outcome::Moved);
                break;
            }
            steps += 1;
        }
        assert!(steps >= 15, "only {steps} steps were seen");
    }
}

/// As above, with three shards whose least goes into one cursor.
#[tokio::test]
async fn shards_are_put_together_by_their_least_however_often_it_is_killed() {
    let shards = [duty("s0"), duty("s1"), duty("s2")];
    let mut steps = 0;
    loop {
        let stores = Stores::new();
        for (id, text) in [("s0", "m"), ("s1", "c"), ("s2", "t")] {
            stores.free(id, text).await;
        }
        let life = Life::new(steps, steps % 2 == 0);
        let mortal = |store: &Arc<dyn Store>| -> Arc<dyn Store> {
            Arc::new(Mortal::new(store.clone(), life.clone()))
        };
        let (mut from, mut to) =
            (desk(&mortal(&stores.from), "F", false), desk(&mortal(&stores.to), "T", false));
        let mut doomed = Move::new(&mut from, &mut to);
        let done = life.live(doomed.run(&shards, &duty("all"), &least)).await;
        stores.one_side_at_most(&shards, &duty("all")).await;
        stores.clock.advance(TTL);
        let (mut from, mut to) = (desk(&stores.from, "F", false), desk(&stores.to, "T", false));
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
    assert_eq!(stores.run(true).await.unwrap(), Outcome::Moved);
    let moved = load(&stores.to, &duty("a")).await.unwrap().unwrap();
    assert_eq!(moved.document, Document::new(*b"x").unwrap());
    let ring = stores.to.history(&duty("a")).await.unwrap();
    let good = verify(&keys(), &duty("a"), ring.first(), &ring);
    assert!(good.iter().all(|(_, inspected)| inspected.verdict == Verdict::Good), "{good:?}");
}

/// Somebody starts in the other store while the move lies half done, and from nothing.
#[tokio::test]
async fn a_stranger_s_checkpoint_is_not_taken_for_the_move_s_own() {
    let stores = Stores::new();
    stores.free("a", "x").await;
    // Opening both, claiming both, looking at both, marking the source: then dead.
    let mut steps = 1;
    while load(&stores.from, &duty("a")).await.is_ok() {
        let life = Life::new(steps, true);
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
    assert_eq!(stores.run(true).await.unwrap(), Outcome::Moved);
    let moved = load(&stores.to, &duty("a")).await.unwrap().unwrap();
    assert_eq!(moved.document, Document::new(*b"x").unwrap());
}

#[tokio::test]
async fn a_move_back_ends_where_it_began() {
    let stores = Stores::new();
    stores.free("a", "x").await;
    stores.run(false).await.unwrap();
    let (mut from, mut to) = (desk(&stores.to, "T", false), desk(&stores.from, "F", false));
    let convert = same(duty("a"));
    let mut back = Move::new(&mut from, &mut to);
    assert_eq!(back.run(&[duty("a")], &duty("a"), &convert).await.unwrap(), Outcome::Moved);
    let home = load(&stores.from, &duty("a")).await.unwrap().unwrap();
    assert_eq!(home.document, Document::new(*b"x").unwrap());
    let ring = stores.from.history(&duty("a")).await.unwrap();
    let good = verify(&keys(), &duty("a"), ring.first(), &ring);
    assert!(good.iter().all(|(_, inspected)| inspected.verdict == Verdict::Good), "{good:?}");
    assert_eq!(load(&stores.to, &duty("a")).await.unwrap_err().code(), Code::Moved);
}

#[tokio::test]
async fn a_duty_without_a_checkpoint_takes_its_epoch_along() {
    let stores = Stores::new();
    let player = Player::join(&worker(&stores.from), "worker", LONG).await;
    for _ in 0..5 {
        let hold = player.hold("a").await;
        player.release(&hold).await;
    }
    let hold = player.hold("a").await;
    player.release(&hold).await;
    assert_eq!(stores.run(false).await.unwrap(), Outcome::OnlyEpoch);
    let next = Player::join(&worker(&stores.to), "next", LONG).await;
    assert!(next.hold("a").await.epoch > hold.epoch);
}

#[tokio::test]
async fn a_rewind_is_a_new_version_with_an_old_document() {
    let stores = Stores::new();
    let (player, hold) = stores.work("a", "x").await;
    let to = Version::new(1).unwrap();
    let refused = rewind(&mut desk(&stores.from, "F", false), &duty("a"), to).await;
    assert_eq!(refused.unwrap_err().code(), Code::Held);

    // The answer to its commit is lost: it reads back.
    let flaky = Flaky::planned(stores.from.clone()).on(Op::Commit, Fault::HappenedButLost);
    let flaky: Arc<dyn Store> = Arc::new(flaky);
    let rewound = rewind(&mut desk(&flaky, "F", true), &duty("a"), to).await.unwrap();
    assert_eq!((rewound.before.get(), rewound.now.get()), (2, 3));
    let now = load(&stores.from, &duty("a")).await.unwrap().unwrap();
    assert_eq!(now.document, Document::new(*b"old").unwrap());
    let late = player.try_commit(&hold, 3, "late").await;
    assert!(matches!(late, Ok(Committed::Fenced { .. })), "{late:?}");
    let ring = stores.from.history(&duty("a")).await.unwrap();
    let good = verify(&keys(), &duty("a"), ring.first(), &ring);
    assert!(good.iter().all(|(_, inspected)| inspected.verdict == Verdict::Good), "{good:?}");

    let never = Version::new(9).unwrap();
    let gone = rewind(&mut desk(&stores.from, "F", false), &duty("a"), never).await;
    assert_eq!(gone.unwrap_err().code(), Code::BadInput);
}

/// A checkpoint as a worker finds it.
async fn text(store: &Arc<dyn Store>, id: &str) -> String {
    match load(store, &duty(id)).await {
        Ok(Some(stored)) => String::from_utf8(stored.document.as_bytes().to_vec()).unwrap(),
        Ok(None) => "none".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Writes one more version.
async fn put(store: &Arc<dyn Store>, id: &str, document: &str) {
    let player = Player::join(&worker(store), "worker", LONG).await;
    let hold = player.hold(id).await;
    let stored = load(store, &duty(id)).await.unwrap();
    player.commit(&hold, stored.map_or(0, |stored| stored.version.get()), document).await;
    player.release(&hold).await;
}

/// Moves `ids` from a store to `target` in another, each with its name.
async fn go(
    from: (&Arc<dyn Store>, &str),
    to: (&Arc<dyn Store>, &str),
    ids: &[&str],
    target: &str,
    force: bool,
) -> Result<Outcome, StoreError> {
    let (mut from, mut to) = (desk(from.0, from.1, force), desk(to.0, to.1, force));
    let sources: Vec<_> = ids.iter().map(|id| duty(id)).collect();
    let mut moving = Move::new(&mut from, &mut to);
    let outcome = match target {
        "all" => moving.run(&sources, &duty(target), &least).await,
        _ => moving.run(&sources, &duty(target), &same(duty(target))).await,
    };
    from.close().await;
    to.close().await;
    outcome
}

impl Stores {
    /// Kills a move of `a` when it has arrived and is not marked as moved.
    async fn half_done(&self) {
        for steps in 1.. {
            let life = Life::new(steps, true);
            let mortal = |store: &Arc<dyn Store>| -> Arc<dyn Store> {
                Arc::new(Mortal::new(store.clone(), life.clone()))
            };
            let (from, to) = (mortal(&self.from), mortal(&self.to));
            let killed = life.live(go((&from, "F"), (&to, "T"), &["a"], "a", false)).await;
            assert!(killed.is_none());
            self.clock.advance(TTL);
            if text(&self.to, "a").await == "x" {
                break;
            }
        }
        assert!(text(&self.from, "a").await.contains("is being moved to T"));
    }
}

#[tokio::test]
async fn a_half_done_move_is_not_gone_on_with_under_another_name() {
    let stores = Stores::new();
    put(&stores.from, "a", "x").await;
    stores.half_done().await;
    let other = go((&stores.from, "F"), (&stores.to, "T"), &["a"], "b", false).await;
    assert_eq!(other.unwrap_err().code(), Code::Moved);
    assert_eq!(text(&stores.to, "b").await, "none");
    let same = go((&stores.from, "F"), (&stores.to, "T"), &["a"], "a", false).await;
    assert_eq!(same.unwrap(), Outcome::Moved);
}

#[tokio::test]
async fn a_half_done_move_is_finished_though_the_other_store_went_on() {
    let stores = Stores::new();
    put(&stores.from, "a", "x").await;
    stores.half_done().await;
    let third: Arc<dyn Store> = Arc::new(Memory::new(stores.clock.clone()));
    go((&stores.to, "T"), (&third, "U"), &["a"], "a", false).await.unwrap();
    let finished = go((&stores.from, "F"), (&stores.to, "T"), &["a"], "a", true).await;
    assert_eq!(finished.unwrap(), Outcome::Moved);
    assert!(text(&stores.to, "a").await.contains("was moved to U"));
    assert_eq!(text(&third, "a").await, "x");
}

#[tokio::test]
async fn a_source_that_is_taken_back_meanwhile_is_good_there_alone() {
    let stores = Stores::new();
    put(&stores.from, "a", "old").await;
    put(&stores.from, "a", "x").await;
    let from = stores.from.clone();
    let taken_back = Box::pin(async move {
        assert!(text(&from, "a").await.contains("is being moved"));
        let mut desk = desk(&from, "F", true);
        rewind(&mut desk, &duty("a"), Version::new(1).unwrap()).await.unwrap();
        desk.close().await;
    });
    // Right before it is written to the other store.
    let hooked: Arc<dyn Store> = Arc::new(Hooked::new(stores.to.clone(), Op::Commit, taken_back));
    let outcome = go((&stores.from, "F"), (&hooked, "T"), &["a"], "a", false).await;
    assert!(outcome.unwrap_err().is_unknown());
    assert_eq!(text(&stores.from, "a").await, "old");
    assert!(text(&stores.to, "a").await.contains("was moved to F"));
}

#[tokio::test]
async fn what_was_moved_before_is_not_put_together_again() {
    let stores = Stores::new();
    let (from, to) = ((&stores.from, "F"), (&stores.to, "T"));
    put(from.0, "a", "c").await;
    put(from.0, "b", "m").await;
    go(from, to, &["a", "b"], "all", false).await.unwrap();
    put(to.0, "all", "q").await;
    go(to, from, &["all"], "x", false).await.unwrap();
    put(from.0, "d", "r").await;
    let again = go(from, to, &["a", "d"], "all", false).await;
    assert_eq!(again.unwrap_err().code(), Code::Moved);
    // The same set again finds what it had made gone on.
    let again = go(from, to, &["a", "b"], "all", false).await;
    assert_eq!(again.unwrap(), Outcome::AlreadyMoved);
    assert_eq!(text(from.0, "x").await, "q");
}

#[tokio::test]
async fn nothing_gives_way_before_everything_can() {
    let stores = Stores::new();
    put(&stores.from, "a", "x").await;
    put(&stores.to, "t1", "theirs").await;
    put(&stores.to, "t2", "theirs").await;
    let convert = |all: &[Vec<u8>]| {
        let arrival = |id| Arrival { duty: duty(id), source: 0, payload: all[0].clone() };
        Ok(vec![arrival("t1"), arrival("t2")])
    };
    // The second is on its way elsewhere.
    let third: Arc<dyn Store> = Arc::new(Memory::new(stores.clock.clone()));
    for steps in 1.. {
        let life = Life::new(steps, true);
        let mortal = |store: &Arc<dyn Store>| -> Arc<dyn Store> {
            Arc::new(Mortal::new(store.clone(), life.clone()))
        };
        let (from, to) = (mortal(&stores.to), mortal(&third));
        assert!(life.live(go((&from, "T"), (&to, "U"), &["t2"], "t2", false)).await.is_none());
        stores.clock.advance(TTL);
        if text(&stores.to, "t2").await.contains("is being moved") {
            break;
        }
    }
    let (mut from, mut to) = (desk(&stores.from, "F", true), desk(&stores.to, "T", true));
    let refused = Move::new(&mut from, &mut to).run(&[duty("a")], &duty("a"), &convert).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(text(&stores.to, "t1").await, "theirs");
    assert_eq!(text(&stores.from, "a").await, "x");
}

#[tokio::test]
async fn a_name_that_leaves_no_room_for_the_seal_is_refused_before_anything_is_marked() {
    let stores = Stores::new();
    let id = "é".repeat(250);
    put(&stores.from, &id, "x").await;
    let refused = go((&stores.from, "F"), (&stores.to, "T"), &[&id], &id, false).await;
    assert_eq!(refused.unwrap_err().code(), Code::BadInput);
    assert_eq!(text(&stores.from, &id).await, "x");
    let nothing = |_: &[Vec<u8>]| Ok(Vec::new());
    let (mut from, mut to) = (desk(&stores.from, "F", false), desk(&stores.to, "T", false));
    let refused = Move::new(&mut from, &mut to).run(&[duty(&id)], &duty(&id), &nothing).await;
    assert_eq!(refused.unwrap_err().code(), Code::BadInput);
    assert_eq!(text(&stores.from, &id).await, "x");
}
