//! Contract 10: eviction.

use tenure_core::InstanceId;
use tenure_core::store::{Claimed, Committed, Evict, Evicted, KeptAlive, OpenSession, Opened};

use super::kit::{Kit, is_held, reason};

super::cases! { "evict":
    at_ttl_leaves_the_holds_until_then,
    at_ttl_refuses_the_keep_alive,
    now_fences_at_once,
    now_frees_every_hold,
    an_evicted_instance_cannot_open_again,
    an_evicted_member_gets_nothing_new,
    a_stranger_can_be_barred_beforehand,
    evicting_twice_changes_nothing,
    an_evicted_member_is_shown_as_such,
    others_are_not_touched,
}

async fn evict(kit: &Kit, instance: &InstanceId, when: Evict) -> Evicted {
    kit.store.evict(&kit.group, instance, when, &reason("gray failure")).await.unwrap()
}

async fn at_ttl_leaves_the_holds_until_then(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let hold = kit.hold(&a, "d").await;
    assert_eq!(evict(&kit, &a.instance, Evict::AtTtl).await, Evicted::Evicted { ended: 0 });
    assert!(is_held(&kit.claim(&b, &[kit.duty("d")]).await[0]));
    assert!(matches!(kit.commit(&a, &hold, 0, "last words").await, Committed::Saved(_)));
    kit.lapse(&a).await;
    assert!(kit.hold(&b, "d").await.epoch > hold.epoch);
}

async fn at_ttl_refuses_the_keep_alive(kit: Kit) {
    let a = kit.join("a").await;
    evict(&kit, &a.instance, Evict::AtTtl).await;
    assert_eq!(kit.keep_alive(&a, &[]).await, KeptAlive::Ended);
}

async fn now_fences_at_once(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let hold = kit.hold(&a, "d").await;
    assert_eq!(evict(&kit, &a.instance, Evict::Now).await, Evicted::Evicted { ended: 1 });
    let committed = kit.commit(&a, &hold, 0, "too late").await;
    assert_eq!(committed, Committed::Fenced { newest: hold.epoch });
    assert_eq!(kit.load(&hold.duty).await, None);
    assert!(kit.hold(&b, "d").await.epoch > hold.epoch);
}

async fn now_frees_every_hold(kit: Kit) {
    let a = kit.join("a").await;
    kit.hold_all(&a, &kit.duties(50)).await;
    assert_eq!(evict(&kit, &a.instance, Evict::Now).await, Evicted::Evicted { ended: 50 });
    let holders = kit.store.holders(&kit.group).await.unwrap();
    assert!(holders.len() == 50 && holders.iter().all(|holder| holder.holder.is_none()));
    assert!(kit.member_ids().await.is_empty());
}

async fn an_evicted_instance_cannot_open_again(kit: Kit) {
    for when in [Evict::Now, Evict::AtTtl] {
        let a = kit.join("a").await;
        evict(&kit, &a.instance, when).await;
        let again = OpenSession { instance: a.instance.clone(), ..kit.wish("a") };
        assert_eq!(kit.open(&again).await, Opened::Evicted);
        kit.lapse(&a).await;
        assert_eq!(kit.open(&again).await, Opened::Evicted);
    }
}

async fn an_evicted_member_gets_nothing_new(kit: Kit) {
    let a = kit.join("a").await;
    evict(&kit, &a.instance, Evict::AtTtl).await;
    assert_eq!(kit.claim(&a, &[kit.duty("d")]).await, [Claimed::SessionEnded]);
}

async fn a_stranger_can_be_barred_beforehand(kit: Kit) {
    let wish = kit.wish("a");
    assert_eq!(evict(&kit, &wish.instance, Evict::Now).await, Evicted::NotAMember);
    assert_eq!(kit.open(&wish).await, Opened::Evicted);
    assert!(kit.member_ids().await.is_empty());
}

async fn evicting_twice_changes_nothing(kit: Kit) {
    let a = kit.join("a").await;
    kit.hold(&a, "d").await;
    evict(&kit, &a.instance, Evict::AtTtl).await;
    assert_eq!(evict(&kit, &a.instance, Evict::AtTtl).await, Evicted::Evicted { ended: 0 });
    // A second eviction, with `Now`, ends what the first one left until the TTL.
    assert_eq!(evict(&kit, &a.instance, Evict::Now).await, Evicted::Evicted { ended: 1 });
    assert!(kit.member_ids().await.is_empty());
}

async fn an_evicted_member_is_shown_as_such(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    evict(&kit, &b.instance, Evict::AtTtl).await;
    let members = kit.store.members(&kit.group).await.unwrap();
    let seen: Vec<_> = members.iter().map(|m| (&m.instance, m.evicted)).collect();
    assert_eq!(seen, [(&a.instance, false), (&b.instance, true)]);
}

async fn others_are_not_touched(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let hold = kit.hold(&b, "d").await;
    evict(&kit, &a.instance, Evict::Now).await;
    assert!(matches!(kit.commit(&b, &hold, 0, "x").await, Committed::Saved(_)));
    assert_eq!(kit.member_ids().await, [b.instance]);
}
