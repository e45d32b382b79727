//! Adopting with lost indexes or shared keys, and the effects of a floor.

use tenure_core::store::{Adopt, Forgotten, KeptAlive, Retention};
use tenure_core::{Code, DutyKey, Epoch, Store};

use super::kit::{
    commit, duty, group, hold, is_fenced, is_kept, join, keep, number, open, reason, refused,
    release, server, try_open, wear,
};

fn wish(floor: Epoch) -> Adopt {
    Adopt { entropy: 77, floor }
}

/// Other handles have the store open: each call reports the reset once, and then works.
#[tokio::test]
async fn an_open_handle_is_told_of_the_adoption() {
    let server = server();
    let (holder, writer, adopter) = (open(&server).await, open(&server).await, open(&server).await);
    let a = join(&holder, "a").await;
    let held = hold(&holder, &a, "x").await;
    let adopted = adopter.adopt(&wish(Epoch::ZERO)).await.unwrap();
    let marker = server.cli(&["hget", "tenure:store", "incarnation"]).unwrap();
    assert_eq!(marker.trim(), adopted.incarnation);
    assert_eq!(keep(&holder, &a, &held).await, KeptAlive::Ended);
    let told = commit(&writer, &a, &held, 0).await.unwrap_err();
    assert_eq!(refused(&told), Some(Code::Reset), "{told}");
    assert!(is_fenced(&commit(&writer, &a, &held, 0).await));
    assert_eq!(keep(&holder, &a, &held).await, KeptAlive::Ended);
    for key in ["poll:lease:x", &format!("poll:node:{}", a.instance)] {
        assert_eq!(number(&server, &["exists", key]), 0, "{key}");
    }
}

/// The set of groups, the set of members and the grants are indexes. Without them, the sessions
/// still end and the epochs are still found.
#[tokio::test]
async fn adopting_finds_what_the_indexes_have_lost() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    let held = hold(&store, &a, "x").await;
    commit(&store, &a, &held, 0).await.unwrap();
    release(&store, &a, &held).await;
    // An epoch far above the base, so that only the keys themselves show it.
    let far = (held.epoch.get() + 1_000_000_000_000).to_string();
    server.cli(&["set", "poll:fence:x", &far]).unwrap();
    for index in ["tenure:groups", "poll:members", "poll:grants"] {
        server.cli(&["del", index]).unwrap();
    }
    let adopter = open(&server).await;
    let adopted = adopter.adopt(&wish(Epoch::ZERO)).await.unwrap();
    assert_eq!((adopted.sessions, adopted.duties), (1, 1), "{adopted:?}");
    assert_eq!(adopted.floor.to_string(), far);
    assert_eq!(adopter.keep_alive(&a, None, &[]).await.unwrap(), KeptAlive::Ended);
    let b = join(&adopter, "b").await;
    assert!(hold(&adopter, &b, "y").await.epoch > adopted.floor);
    assert!(adopter.load(&[duty("x")]).await.unwrap()[0].is_some());
}

/// An unreadable epoch is not an absent one. A key of another type does count as absent, because no
/// grant was ever written into it.
#[tokio::test]
async fn adopting_is_refused_when_an_epoch_cannot_be_read() {
    let server = server();
    let url = server.url().replace("redis://", "redis://app:pw@");
    let user = ["acl", "setuser", "app", "on", ">pw", "~*", "&*", "+@all", "-lindex"];
    server.cli(&user).unwrap();
    let store = try_open(&url).await.unwrap();
    let a = join(&store, "a").await;
    let held = hold(&store, &a, "x").await;
    commit(&store, &a, &held, 0).await.unwrap();
    for words in [&["lpush", "poll:fence:list", "1"][..], &["set", "poll:checkpoint:text", "1"]] {
        server.cli(words).unwrap();
    }
    let before = server.cli(&["hgetall", "tenure:store"]).unwrap();
    let error = store.adopt(&wish(Epoch::ZERO)).await.unwrap_err();
    assert_eq!(refused(&error), Some(Code::Denied), "{error}");
    assert_eq!(server.cli(&["hgetall", "tenure:store"]).unwrap(), before);
    assert!(is_kept(&keep(&store, &a, &held).await));
    server.cli(&["acl", "setuser", "app", "+lindex"]).unwrap();
    assert_eq!(store.adopt(&wish(Epoch::ZERO)).await.unwrap().sessions, 1);
}

/// A database may be shared: keys of other programs stay, whatever their names.
#[tokio::test]
async fn adopting_leaves_alone_what_belongs_to_others() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    hold(&store, &a, "x").await;
    // A checkpoint of a duty whose id makes its key look like a session's.
    let odd = join(&store, "odd").await;
    let trap = DutyKey::new("poll", "session:y").unwrap();
    let claimed = hold(&store, &odd, trap.id.as_str()).await;
    commit(&store, &odd, &claimed, 0).await.unwrap();
    for words in [
        &["hset", "app:session:1", "user", "7"][..],
        &["set", "app:lease:1", "theirs"],
        &["set", "app:fence:1", "9007199254740990"],
        &["set", "poll:lease:foreign", "elsewhere"],
        &["set", "poll:node:elsewhere", "1"],
    ] {
        server.cli(words).unwrap();
    }
    let adopted = store.adopt(&wish(Epoch::ZERO)).await.unwrap();
    assert_eq!(adopted.sessions, 2);
    assert!(adopted.floor.get() < 9_007_199_254_740_990);
    for key in [
        "app:session:1",
        "app:lease:1",
        "app:fence:1",
        "poll:lease:foreign",
        "poll:node:elsewhere",
        "poll:checkpoint:session:y",
    ] {
        assert_eq!(number(&server, &["exists", key]), 1, "{key}");
    }
    assert!(store.load(&[trap]).await.unwrap()[0].is_some());
}

/// The floor is permanent, and programs that do not know floors are refused from then on.
#[tokio::test]
async fn a_floor_has_no_ttl_and_keeps_older_programs_out() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    let last = wear(&store, &a, "x", 5).await;
    assert_eq!(number(&server, &["hget", "tenure:store", "breaking"]), 0);
    let forgotten = store.forget(&[duty("x")], &reason()).await.unwrap();
    assert!(matches!(forgotten[0], Forgotten::Forgotten { floor } if floor >= last));
    assert_eq!(number(&server, &["pttl", "poll:floor"]), -1);
    assert_eq!(number(&server, &["get", "poll:floor"]) as u64, last.get());
    assert_eq!(number(&server, &["hget", "tenure:store", "breaking"]), 2);
    for key in ["poll:fence:x", "poll:checkpoint:x", "poll:history:x"] {
        assert_eq!(number(&server, &["exists", key]), 0, "{key}");
    }
    let later = open(&server).await;
    assert!(hold(&later, &a, "x").await.epoch > last);
    server.cli(&["set", "poll:floor", "no number"]).unwrap();
    let broken = super::kit::try_claim(&later, &a, "z").await.unwrap_err();
    assert_eq!(refused(&broken), Some(Code::Damaged), "{broken}");
}

/// A foreign instance holds a duty only by its lease.
#[tokio::test]
async fn a_foreign_holder_is_not_forgotten() {
    let server = server();
    let store = open(&server).await;
    server.cli(&["set", "poll:lease:x", "elsewhere", "px", "60000"]).unwrap();
    let forgotten = store.forget(&[duty("x")], &reason()).await.unwrap();
    let Forgotten::HeldBy(Some(holder)) = &forgotten[0] else { panic!("{forgotten:?}") };
    assert_eq!(holder.instance.as_str(), "elsewhere");
}

/// Histories are trimmed at once, not at the next commit.
#[tokio::test]
async fn a_smaller_history_frees_its_memory() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    let held = hold(&store, &a, "x").await;
    for n in 0..10 {
        commit(&store, &a, &held, n).await.unwrap();
    }
    store.retain(Retention { history_slots: 4, audit_kept: 1_000 }).await.unwrap();
    assert_eq!(number(&server, &["llen", "poll:history:x"]), 4);
    assert_eq!(store.holders(&group()).await.unwrap().len(), 1);
}
