//! A server that was killed and restarted (contract 6, 12, 21).

use tenure_core::store::{Committed, KeptAlive};
use tenure_core::{Store, Version};

use super::kit::{
    commit, durable_server, duty, hold, is_kept, join, keep, open, release, server, settled, wear,
};

#[tokio::test]
async fn with_its_file_a_store_keeps_holds_epochs_and_checkpoints() {
    let server = durable_server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    let held = hold(&store, &a, "x").await;
    commit(&store, &a, &held, 0).await.unwrap();
    server.kill().unwrap();
    server.start_again().unwrap();
    assert!(is_kept(&keep(&store, &a, &held).await));
    let duties = [duty("x")];
    let stored = settled(|| store.load(&duties)).await.remove(0).unwrap();
    assert_eq!((stored.epoch, stored.version.get()), (held.epoch, 1));
    let second = Version::new(2).unwrap();
    assert_eq!(commit(&store, &a, &held, 1).await, Ok(Committed::Saved(second)));
    release(&store, &a, &held).await;
    assert!(hold(&store, &a, "x").await.epoch > held.epoch);
}

#[tokio::test]
async fn without_a_file_a_restart_is_a_flush() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    wear(&store, &a, "x", 300).await;
    let held = hold(&store, &a, "x").await;
    server.kill().unwrap();
    server.start_again().unwrap();
    assert_eq!(keep(&store, &a, &held).await, KeptAlive::Ended);
    let fresh = open(&server).await;
    let b = join(&fresh, "b").await;
    assert!(hold(&fresh, &b, "x").await.epoch > held.epoch);
}

/// A file that is written every second loses the last grants. The marker exists, so nothing looks
/// lost; only the run id shows that something may be.
#[tokio::test]
async fn a_restart_that_rewinds_grants_no_epoch_twice() {
    let server = durable_server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    let before = wear(&store, &a, "x", 1).await;
    let lost = wear(&store, &a, "x", 3).await;
    let unrelated = open(&server).await;
    let b = join(&unrelated, "b").await;
    server.kill().unwrap();
    server.start_again().unwrap();
    let rewound = before.to_string();
    server.cli(&["set", "poll:fence:x", &rewound]).unwrap();
    // This handle was open all the time and has never seen the duty.
    settled(|| unrelated.keep_alive(&b, None, &[])).await;
    assert!(hold(&unrelated, &b, "x").await.epoch > lost);
}

/// The same for a user without permission to read the run id.
#[tokio::test]
async fn without_the_right_to_ask_each_opening_and_claim_raises_the_base() {
    let server = durable_server();
    let url = server.url().replace("redis://", "redis://app:pw@");
    let user = ["acl", "setuser", "app", "on", ">pw", "~*", "&*", "+@all", "-info"];
    server.cli(&user).unwrap();
    let store = super::kit::try_open(&url).await.unwrap();
    let unrelated = super::kit::try_open(&url).await.unwrap();
    let a = join(&store, "a").await;
    let c = join(&unrelated, "c").await;
    let before = wear(&store, &a, "x", 1).await;
    let lost = wear(&store, &a, "x", 3).await;
    let rewound = before.to_string();
    server.cli(&["set", "poll:fence:x", &rewound]).unwrap();
    // This handle was open all the time and has never seen the duty.
    let lost = {
        let again = hold(&unrelated, &c, "x").await;
        assert!(again.epoch > lost);
        unrelated.close_session(&c, &super::kit::reason()).await.unwrap();
        again.epoch
    };
    drop(store);
    server.cli(&["set", "poll:fence:x", &rewound]).unwrap();
    let fresh = super::kit::try_open(&url).await.unwrap();
    let b = join(&fresh, "b").await;
    assert!(hold(&fresh, &b, "x").await.epoch > lost);
}
