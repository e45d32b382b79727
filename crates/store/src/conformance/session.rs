//! Contract 1 to 4: sessions.

use std::time::Duration;

use tenure_core::store::{Closed, KeptAlive, OpenSession, Opened};
use tenure_core::{GroupName, Note, Ttl};

use super::kit::{Kit, reason};

super::cases! { "session":
    opening_makes_a_member_with_its_note,
    a_live_instance_cannot_open_a_second_session,
    a_lost_reply_at_start_up_is_no_stranger,
    a_closed_session_does_not_come_back,
    an_expired_session_does_not_come_back,
    a_session_from_before_the_last_one_does_not_come_back,
    an_instance_may_open_anew_once_its_session_ended,
    closing_twice_says_so,
    closing_ends_the_membership,
    an_expired_session_is_no_member,
    an_expired_session_cannot_be_kept_alive,
    a_closed_session_cannot_be_kept_alive,
    another_nonce_cannot_keep_a_session_alive,
    another_nonce_cannot_close_a_session,
    keep_alive_replaces_the_note_only_when_given,
    a_note_of_four_kib_is_kept,
    the_store_s_clock_ends_a_session,
    keep_alive_gives_a_whole_ttl_again,
    two_groups_are_two_memberships,
    members_are_sorted_and_seen_by_every_client,
}

async fn opening_makes_a_member_with_its_note(kit: Kit) {
    let wish = OpenSession { note: Note::new("weight=2 \0 zone=ü").unwrap(), ..kit.wish("a") };
    assert_eq!(kit.open(&wish).await, Opened::Open(wish.session()));
    let members = kit.store.members(&kit.group).await.unwrap();
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].instance, wish.instance);
    assert_eq!(members[0].nonce, Some(wish.nonce));
    assert_eq!(members[0].note, wish.note);
    assert!(!members[0].evicted);
    assert!(members[0].remaining > Duration::ZERO && members[0].remaining <= wish.ttl.get());
}

async fn a_live_instance_cannot_open_a_second_session(kit: Kit) {
    let first = kit.join("a").await;
    let second = OpenSession { instance: first.instance.clone(), ..kit.wish("b") };
    assert_eq!(kit.open(&second).await, Opened::Taken);
    assert_eq!(kit.keep_alive(&second.session(), &[]).await, KeptAlive::Ended);
    assert!(matches!(kit.keep_alive(&first, &[]).await, KeptAlive::Kept { .. }));
}

async fn a_lost_reply_at_start_up_is_no_stranger(kit: Kit) {
    let wish = kit.wish("a");
    kit.open(&wish).await;
    let hold = kit.hold(&wish.session(), "d").await;
    assert_eq!(kit.open(&wish).await, Opened::Open(wish.session()));
    assert_eq!(kit.member_ids().await, [wish.instance.clone()]);
    assert_eq!(kit.fates(&wish.session(), &[hold]).await, [tenure_core::store::HoldFate::Kept]);
}

async fn a_closed_session_does_not_come_back(kit: Kit) {
    let wish = kit.wish("a");
    kit.open(&wish).await;
    kit.store.close_session(&wish.session(), &reason("done")).await.unwrap();
    assert_eq!(kit.open(&wish).await, Opened::Spent);
    assert!(kit.member_ids().await.is_empty());
}

async fn an_expired_session_does_not_come_back(kit: Kit) {
    let wish = kit.wish("a");
    kit.open(&wish).await;
    kit.lapse(&wish.session()).await;
    assert_eq!(kit.open(&wish).await, Opened::Spent);
    assert!(kit.member_ids().await.is_empty());
}

/// A delayed opening must not revive a session that ended two sessions ago.
async fn a_session_from_before_the_last_one_does_not_come_back(kit: Kit) {
    let first = kit.wish("a");
    kit.open(&first).await;
    let old = kit.hold(&first.session(), "d").await;
    kit.lapse(&first.session()).await;
    let second = OpenSession { instance: first.instance.clone(), ..kit.wish("a") };
    kit.open(&second).await;
    kit.store.close_session(&second.session(), &reason("done")).await.unwrap();
    let other = kit.join("b").await;
    kit.hold(&other, "d").await;
    assert_eq!(kit.open(&first).await, Opened::Spent);
    assert_eq!(kit.keep_alive(&first.session(), &[old]).await, KeptAlive::Ended);
}

async fn an_instance_may_open_anew_once_its_session_ended(kit: Kit) {
    let first = kit.join("a").await;
    kit.lapse(&first).await;
    let again = OpenSession { instance: first.instance.clone(), ..kit.wish("a") };
    assert_eq!(kit.open(&again).await, Opened::Open(again.session()));
    assert_eq!(kit.keep_alive(&first, &[]).await, KeptAlive::Ended);
    assert!(matches!(kit.keep_alive(&again.session(), &[]).await, KeptAlive::Kept { .. }));
}

async fn closing_twice_says_so(kit: Kit) {
    let session = kit.join("a").await;
    let close = || kit.store.close_session(&session, &WHY);
    static WHY: std::sync::LazyLock<tenure_core::Reason> =
        std::sync::LazyLock::new(|| reason("done"));
    assert_eq!(close().await.unwrap(), Closed::Closed);
    assert_eq!(close().await.unwrap(), Closed::AlreadyEnded);
}

async fn closing_ends_the_membership(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    kit.store.close_session(&a, &reason("done")).await.unwrap();
    assert_eq!(kit.member_ids().await, [b.instance]);
}

async fn an_expired_session_is_no_member(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    kit.lapse(&a).await;
    assert_eq!(kit.member_ids().await, [b.instance]);
}

async fn an_expired_session_cannot_be_kept_alive(kit: Kit) {
    let session = kit.join("a").await;
    kit.lapse(&session).await;
    assert_eq!(kit.keep_alive(&session, &[]).await, KeptAlive::Ended);
    assert!(kit.member_ids().await.is_empty());
}

async fn a_closed_session_cannot_be_kept_alive(kit: Kit) {
    let session = kit.join("a").await;
    kit.store.close_session(&session, &reason("done")).await.unwrap();
    assert_eq!(kit.keep_alive(&session, &[]).await, KeptAlive::Ended);
}

async fn another_nonce_cannot_keep_a_session_alive(kit: Kit) {
    let session = kit.join("a").await;
    let stranger = tenure_core::Session { nonce: kit.wish("x").nonce, ..session.clone() };
    assert_eq!(kit.keep_alive(&stranger, &[]).await, KeptAlive::Ended);
    assert!(matches!(kit.keep_alive(&session, &[]).await, KeptAlive::Kept { .. }));
}

async fn another_nonce_cannot_close_a_session(kit: Kit) {
    let session = kit.join("a").await;
    let stranger = tenure_core::Session { nonce: kit.wish("x").nonce, ..session.clone() };
    let closed = kit.store.close_session(&stranger, &reason("mistake")).await.unwrap();
    assert_eq!(closed, Closed::AlreadyEnded);
    assert_eq!(kit.member_ids().await, [session.instance]);
}

async fn keep_alive_replaces_the_note_only_when_given(kit: Kit) {
    let wish = OpenSession { note: Note::new("first").unwrap(), ..kit.wish("a") };
    kit.open(&wish).await;
    let note =
        || async { kit.store.members(&kit.group).await.unwrap()[0].note.as_str().to_owned() };
    kit.keep_alive(&wish.session(), &[]).await;
    assert_eq!(note().await, "first");
    let second = Note::new("second").unwrap();
    kit.store.keep_alive(&wish.session(), Some(&second), &[]).await.unwrap();
    assert_eq!(note().await, "second");
}

async fn a_note_of_four_kib_is_kept(kit: Kit) {
    let note = Note::new("ü".repeat(2048)).unwrap();
    let wish = OpenSession { note: note.clone(), ..kit.wish("a") };
    kit.open(&wish).await;
    assert_eq!(kit.store.members(&kit.group).await.unwrap()[0].note, note);
}

/// With no call on behalf of the holder, the store's clock alone ends the session.
async fn the_store_s_clock_ends_a_session(kit: Kit) {
    let watcher = kit.other_client().await;
    let long = kit.join("long").await;
    let short = OpenSession { ttl: Ttl::new(Ttl::MIN_TTL).unwrap(), ..kit.wish("short") };
    kit.open(&short).await;
    let held = kit.hold(&short.session(), "d").await;
    while watcher.member_ids().await.contains(&short.instance) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(kit.keep_alive(&short.session(), &[held]).await, KeptAlive::Ended);
    assert_eq!(watcher.member_ids().await, [long.instance]);
}

/// The remaining time shrinks, and grows only when a keep-alive extends the session.
async fn keep_alive_gives_a_whole_ttl_again(kit: Kit) {
    let session = kit.join("a").await;
    let remaining = || async { kit.store.members(&kit.group).await.unwrap()[0].remaining };
    // On a busy machine time may pass between the two reads; one success is enough.
    for _ in 0..50 {
        let opened = remaining().await;
        let mut before = opened;
        while before + Duration::from_millis(40) > opened {
            tokio::time::sleep(Duration::from_millis(5)).await;
            before = remaining().await;
        }
        kit.keep_alive(&session, &[]).await;
        let after = remaining().await;
        assert!(after <= session.ttl.get());
        if after > before {
            return;
        }
    }
    panic!("no keep-alive extended the session");
}

async fn two_groups_are_two_memberships(kit: Kit) {
    let here = kit.join("a").await;
    let other = GroupName::new(format!("{}-other", kit.group.as_str())).unwrap();
    let there =
        OpenSession { group: other.clone(), instance: here.instance.clone(), ..kit.wish("a") };
    assert_eq!(kit.open(&there).await, Opened::Open(there.session()));
    kit.lapse(&here).await;
    assert!(kit.member_ids().await.is_empty());
    assert_eq!(kit.store.members(&other).await.unwrap().len(), 1);
}

async fn members_are_sorted_and_seen_by_every_client(kit: Kit) {
    let mut expected = Vec::new();
    for name in ["c", "a", "b"] {
        expected.push(kit.join(name).await.instance);
    }
    expected.sort();
    assert_eq!(kit.member_ids().await, expected);
    assert_eq!(kit.other_client().await.member_ids().await, expected);
}
