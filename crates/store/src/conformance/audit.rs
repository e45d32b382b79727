//! Contract 17: the audit trail.

use tenure_core::store::{AuditEntry, AuditKind, AuditRange, ClaimRequest, Evict};

use super::kit::{Kit, reason};

super::cases! { "audit":
    the_life_of_a_duty_is_recorded_in_order,
    reasons_are_kept,
    an_expiry_is_recorded_by_the_next_holder,
    an_eviction_is_recorded_with_its_holds,
    what_did_not_happen_is_not_recorded,
    a_range_goes_on_where_it_ended,
    sequence_numbers_grow_over_clients,
    the_audit_of_two_groups_is_apart,
}

async fn entries(kit: &Kit) -> Vec<AuditEntry> {
    kit.store.audit(&kit.group, AuditRange::first(1_000)).await.unwrap()
}

async fn kinds(kit: &Kit) -> Vec<&'static str> {
    entries(kit).await.iter().map(|entry| entry.kind.as_str()).collect()
}

async fn the_life_of_a_duty_is_recorded_in_order(kit: Kit) {
    let a = kit.join("a").await;
    let first = kit.hold(&a, "d").await;
    kit.release(&a, &first).await;
    let second = kit.hold(&a, "d").await;
    kit.store.close_session(&a, &reason("done")).await.unwrap();
    let expected = ["joined", "granted", "released", "granted", "released", "left"];
    assert_eq!(kinds(&kit).await, expected);
    let entries = entries(&kit).await;
    let epochs: Vec<_> = entries.iter().filter_map(|entry| entry.epoch).collect();
    assert_eq!(epochs, [first.epoch, first.epoch, second.epoch, second.epoch]);
    assert!(entries.iter().all(|entry| entry.instance == a.instance));
    assert!(entries[1..5].iter().all(|entry| entry.duty == Some(kit.duty("d"))));
    assert!(entries.is_sorted_by(|left, right| left.seq < right.seq));
}

async fn reasons_are_kept(kit: Kit) {
    let a = kit.join("a").await;
    let want = ClaimRequest::new(kit.duty("d"));
    let why = reason("rebalance: ü is over quota");
    kit.store.claim(&a, &[want], &why).await.unwrap();
    kit.store.close_session(&a, &reason("shutdown")).await.unwrap();
    let entries = entries(&kit).await;
    let reasons: Vec<_> = entries.iter().skip(1).map(|entry| entry.reason.as_str()).collect();
    assert_eq!(reasons, [why.as_str(), "shutdown", "shutdown"]);
}

async fn an_expiry_is_recorded_by_the_next_holder(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let old = kit.hold(&a, "d").await;
    kit.lapse(&a).await;
    let new = kit.hold(&b, "d").await;
    let entries = entries(&kit).await;
    let [.., expired, granted] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!((expired.kind, &expired.instance), (AuditKind::Expired, &a.instance));
    assert_eq!(expired.epoch, Some(old.epoch));
    assert_eq!((granted.kind, &granted.instance), (AuditKind::Granted, &b.instance));
    assert_eq!(granted.epoch, Some(new.epoch));
}

async fn an_eviction_is_recorded_with_its_holds(kit: Kit) {
    let a = kit.join("a").await;
    let hold = kit.hold(&a, "d").await;
    let why = reason("gray failure");
    kit.store.evict(&kit.group, &a.instance, Evict::Now, &why).await.unwrap();
    let entries = entries(&kit).await;
    let evicted: Vec<_> = entries.iter().filter(|e| e.kind == AuditKind::Evicted).collect();
    assert_eq!(evicted.len(), 2, "{entries:?}");
    assert!(evicted.iter().all(|e| e.reason == "gray failure" && e.instance == a.instance));
    assert!(evicted.iter().any(|e| e.duty.is_none()));
    assert!(evicted.iter().any(|e| e.duty == Some(kit.duty("d")) && e.epoch == Some(hold.epoch)));
}

async fn what_did_not_happen_is_not_recorded(kit: Kit) {
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let hold = kit.hold(&a, "d").await;
    kit.claim(&b, &[kit.duty("d")]).await;
    kit.claim(&a, &[kit.duty("d")]).await;
    kit.release(&b, &hold).await;
    kit.keep_alive(&a, &[hold.clone()]).await;
    kit.commit(&a, &hold, 0, "x").await;
    kit.release(&a, &hold).await;
    kit.release(&a, &hold).await;
    assert_eq!(kinds(&kit).await, ["joined", "joined", "granted", "released"]);
}

async fn a_range_goes_on_where_it_ended(kit: Kit) {
    let a = kit.join("a").await;
    kit.hold_all(&a, &kit.duties(9)).await;
    let all = entries(&kit).await;
    assert_eq!(all.len(), 10);
    let mut read = Vec::new();
    loop {
        let after = read.last().map_or(0, |entry: &AuditEntry| entry.seq);
        let part = kit.store.audit(&kit.group, AuditRange { after, limit: 4 }).await.unwrap();
        assert!(part.len() <= 4);
        if part.is_empty() {
            break;
        }
        read.extend(part);
    }
    assert_eq!(read, all);
}

async fn sequence_numbers_grow_over_clients(kit: Kit) {
    let other = kit.other_client().await;
    let a = kit.join("a").await;
    let b = other.join("b").await;
    for _ in 0..5 {
        let hold = kit.hold(&a, "d").await;
        kit.release(&a, &hold).await;
        let hold = other.hold(&b, "d").await;
        other.release(&b, &hold).await;
    }
    let entries = entries(&kit).await;
    assert_eq!(entries.len(), 22);
    let epochs: Vec<_> = entries
        .iter()
        .filter(|entry| entry.kind == AuditKind::Granted)
        .map(|entry| entry.epoch.unwrap())
        .collect();
    assert!(epochs.is_sorted_by(|left, right| left < right));
}

async fn the_audit_of_two_groups_is_apart(kit: Kit) {
    let other = Kit::new(kit.place.clone()).await;
    kit.join("a").await;
    other.join("b").await;
    assert_eq!(entries(&kit).await.len(), 1);
    assert_eq!(entries(&other).await.len(), 1);
}
