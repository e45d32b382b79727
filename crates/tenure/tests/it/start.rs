//! Joining: which errors end it, and which are retried.

use std::sync::Arc;

use tenure::store::signing::{Keyring, Sealed, Signing};
use tenure::store::{BootClock, ClaimRequest, Claimed, Commit, MAX_BATCH, OpenSession};
use tenure::{
    Change, Code, Document, Duties, DutyKey, GroupName, Join, MembershipEvent, Note, Reason, Store,
    Version, opener, process,
};
use testkit::Proxy;

use super::outage::through;
use super::player::*;

#[tokio::test]
async fn a_second_member_under_the_same_id_is_refused() {
    everywhere(|place| async move {
        let (group, twin) = (group(), stranger());
        let start = || join(&place, &group, standby()).instance(&twin).start();
        let mut first = start().await.unwrap();
        let guard = assigned(&mut first).await;
        let error = start().await.unwrap_err();
        assert_eq!(error.code(), Code::DuplicateInstance, "{}: {error}", place.name);
        assert!(guard.check().is_ok(), "the first one goes on");
        drop(guard);
        first.leave().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn another_layout_than_the_group_s_is_refused_with_both_values() {
    everywhere(|place| async move {
        let group = group();
        let mut first = join(&place, &group, standby()).start().await.unwrap();
        let _guard = assigned(&mut first).await;
        let error = join(&place, &group, Duties::Shards(3)).start().await.unwrap_err();
        assert_eq!(error.code(), Code::SettingsDiffer, "{}: {error}", place.name);
        let text = error.to_string();
        assert!(text.contains("standby, this instance's is shards:3"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn what_waiting_cannot_cure_fails_at_once() {
    for code in [Code::Denied, Code::NoTls, Code::NewerSchema, Code::BadUrl, Code::NeedsMigration] {
        let refuses = opener(move || async move { Err(tenure::StoreError::refused(code, "x")) });
        let join = Join::new(refuses, Arc::new(BootClock), group(), ttl(), standby());
        assert_eq!(soon(code, join.start()).await.unwrap_err().code(), code);
    }
    let panics = opener(|| async { panic!("on purpose") });
    let broken = Join::new(panics, Arc::new(BootClock), group(), ttl(), standby());
    soon("an error", broken.start()).await.unwrap_err();
    for bad in ["", "nothing", "sqlite:"] {
        let error = tenure::join(bad, "g", TTL, standby()).unwrap_err();
        assert_eq!(error.code(), Code::BadUrl);
    }
    let place = Place::memory();
    let none = join(&place, &group(), Duties::Shards(0)).start().await.unwrap_err();
    assert_eq!(none.code(), Code::BadInput);
}

/// One keep-alive names every hold, and every store limits its length.
#[tokio::test]
async fn room_for_more_than_a_keep_alive_can_name_is_refused_with_both_numbers() {
    let place = Place::memory();
    let join = |room| join(&place, &group(), standby()).room(room);
    let error = join(MAX_BATCH + 1).start().await.unwrap_err();
    assert_eq!(error.code(), Code::BadInput);
    let text = error.to_string();
    assert!(text.contains("10001") && text.contains("10000"), "{text}");
    join(MAX_BATCH).start().await.unwrap().leave().await.unwrap();
}

#[tokio::test]
async fn a_store_that_is_not_there_yet_is_waited_for() {
    for server in servers() {
        let (url, proxy) = through(&server);
        proxy.cut();
        let (place, group) = (Place::at(&url), group());
        let error = join(&place, &group, standby()).no_wait().start().await.unwrap_err();
        assert_eq!(error.code(), Code::Unreachable, "{error}");

        let witness = Witness::new();
        let join = join(&place, &group, standby()).observer(witness.clone());
        let mut membership = join.start().await.unwrap();
        let record = witness.saw(Change::JoinFailed, 0).await;
        assert!(record.reason.contains("ST002"), "{record:?}");
        proxy.restore().unwrap();
        assigned(&mut membership).await;
        membership.leave().await.unwrap();
    }
}

#[tokio::test]
async fn who_waits_for_a_store_can_go() {
    let nobody = Proxy::start(1).unwrap();
    nobody.cut();
    let place = Place::at(&format!("redis://127.0.0.1:{}/0", nobody.port()));
    let mut membership = join(&place, &group(), standby()).start().await.unwrap();
    membership.leaver().leave();
    let end = next(&mut membership, "the end", |event| match event {
        MembershipEvent::Ended(end) => Some(end),
        _ => None,
    });
    assert_eq!(end.await, Ok(()));
    assert!(membership.next().await.is_none());
}

/// Commits a checkpoint of a duty, from outside of any membership.
async fn put(place: &Place, group: &GroupName, id: &str, text: &str) {
    let store = place.store().await;
    let open = OpenSession {
        group: group.clone(),
        instance: stranger().id().clone(),
        nonce: process::fresh_nonce(),
        ttl: ttl(),
        note: Note::default(),
    };
    store.open_session(&open).await.unwrap();
    let (session, why) = (open.session(), Reason::new("test").unwrap());
    let want = ClaimRequest::new(DutyKey::new(group.as_str(), id).unwrap());
    let claimed = store.claim(&session, &[want], &why).await.unwrap().remove(0);
    let Claimed::Granted(hold) = claimed else { panic!("{claimed:?}") };
    let document = Document::new(text.as_bytes()).unwrap();
    let commit = Commit { hold, expected: Version::ZERO, document };
    store.commit(&session, &[commit]).await.unwrap();
    store.close_session(&session, &why).await.unwrap();
}

#[tokio::test]
async fn no_shard_starts_from_nothing_while_its_checkpoint_has_another_name() {
    everywhere(|place| async move {
        let group = group();
        // None of these is a shard of a group of two.
        for other in ["all", "all:shard-x", "all:shard-01", "all:shard-2"] {
            put(&place, &group, other, "{}").await;
        }
        put(&place, &group, "all:shard-1", "seven").await;
        let start = || join(&place, &group, Duties::Shards(2)).start();
        let error = start().await.unwrap_err();
        assert_eq!(error.code(), Code::OtherName, "{}: {error}", place.name);
        assert!(error.to_string().contains("all:shard-1 has a checkpoint"), "{error}");
        // There is no member, and the group has no settings yet.
        let members = place.store().await.members(&group).await.unwrap();
        assert!(members.is_empty(), "{members:?}");
        put(&place, &group, "1", "seven").await;
        let mut member = start().await.unwrap();
        let mut loaded = Vec::new();
        for _ in 0..2 {
            let guard = assigned(&mut member).await;
            loaded.push((guard.load().await.unwrap().is_some(), guard));
        }
        let found: Vec<_> = loaded.iter().filter(|(found, _)| *found).collect();
        assert!(found.len() == 1 && found[0].1.duty().id.as_str() == "1", "{loaded:?}");
        drop(loaded);
        member.leave().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_checkpoint_under_another_name_counts_whatever_its_signature_says() {
    let (place, group) = (Place::memory(), group());
    put(&place, &group, "all:shard-0", "{}").await;
    let keys = format!("k sign {}", "5e".repeat(32));
    let unsigned = place.store().await;
    let signed = opener(move || {
        let signing = Signing::Require(Keyring::parse(&keys).unwrap());
        let store: Arc<dyn Store> = Arc::new(Sealed::new(unsigned.clone(), signing));
        async { Ok(store) }
    });
    let join = Join::new(signed, Arc::new(BootClock), group, ttl(), Duties::Shards(1));
    assert_eq!(join.start().await.unwrap_err().code(), Code::OtherName);
}
