//! Moves that meet another move, a rewind, or an unsuitable name.

use super::*;
use tenure_core::store::Claimed;
use tenure_store::conformance::wrap::Hooked;

/// Returns a checkpoint as a worker reads it.
async fn text(store: &Arc<dyn Store>, id: &str) -> String {
    match load(store, &duty(id)).await {
        Ok(Some(stored)) => String::from_utf8(stored.document.as_bytes().to_vec()).unwrap(),
        Ok(None) => "none".to_owned(),
        Err(error) => error.to_string(),
    }
}

async fn put(store: &Arc<dyn Store>, id: &str, document: &str) {
    let player = Player::join(&worker(store), "worker", LONG).await;
    let hold = player.hold(id).await;
    let stored = load(store, &duty(id)).await.unwrap();
    player.commit(&hold, stored.map_or(0, |stored| stored.version.get()), document).await;
    player.release(&hold).await;
}

/// Moves `ids` from one store to `target` in another; each store is given with its name.
async fn go(
    from: (&Arc<dyn Store>, &str),
    to: (&Arc<dyn Store>, &str),
    ids: &[&str],
    target: &str,
    force: bool,
) -> Result<MoveOutcome, StoreError> {
    let (mut from, mut to) = (session(from.0, from.1, force), session(to.0, to.1, force));
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
    /// Kills a move of `a` after its arrival, before the source is marked as moved.
    async fn half_done(&self) {
        for steps in 1.. {
            let life = CallBudget::new(steps, true);
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
    assert_eq!(same.unwrap(), MoveOutcome::Moved);
}

#[tokio::test]
async fn a_half_done_move_is_finished_though_the_other_store_went_on() {
    let stores = Stores::new();
    put(&stores.from, "a", "x").await;
    stores.half_done().await;
    let third: Arc<dyn Store> = Arc::new(Memory::new(stores.clock.clone()));
    go((&stores.to, "T"), (&third, "U"), &["a"], "a", false).await.unwrap();
    let finished = go((&stores.from, "F"), (&stores.to, "T"), &["a"], "a", true).await;
    assert_eq!(finished.unwrap(), MoveOutcome::Moved);
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
        let mut session = session(&from, "F", true);
        rewind(&mut session, &duty("a"), Version::new(1).unwrap()).await.unwrap();
        session.close().await;
    });
    // Runs right before the checkpoint is written to the other store.
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
    // Moving the same set again finds its result, which was moved on since.
    let again = go(from, to, &["a", "b"], "all", false).await;
    assert_eq!(again.unwrap(), MoveOutcome::AlreadyMoved);
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
    // The second target is being moved elsewhere.
    let third: Arc<dyn Store> = Arc::new(Memory::new(stores.clock.clone()));
    for steps in 1.. {
        let life = CallBudget::new(steps, true);
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
    let (mut from, mut to) = (session(&stores.from, "F", true), session(&stores.to, "T", true));
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
    let (mut from, mut to) = (session(&stores.from, "F", false), session(&stores.to, "T", false));
    let refused = Move::new(&mut from, &mut to).run(&[duty(&id)], &duty(&id), &nothing).await;
    assert_eq!(refused.unwrap_err().code(), Code::BadInput);
    assert_eq!(text(&stores.from, &id).await, "x");
}

/// The operator takes the duty twice; each time its worker claims it again first.
#[tokio::test]
async fn a_duty_that_its_worker_claims_again_at_once_stays_with_it() {
    let stores = Stores::new();
    let (player, _) = stores.work("a", "x").await;
    let player = Arc::new(player);
    let rival = player.clone();
    let contested = Hooked::each(stores.from.clone(), Op::Claim, move || {
        let rival = rival.clone();
        Box::pin(async move { drop(rival.claim("a").await) })
    });
    let contested: Arc<dyn Store> = Arc::new(contested);
    let mut session = session(&contested, "F", true);
    let refused = rewind(&mut session, &duty("a"), Version::new(1).unwrap()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Held);
    assert!(refused.to_string().contains("is held by worker"), "{refused}");
    session.close().await;
    assert!(matches!(player.claim("a").await, Claimed::Already(_)), "the worker has lost it");
}
