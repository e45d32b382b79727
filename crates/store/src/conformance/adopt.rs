//! Contract 23: adopting a store.

use tenure_core::store::{
    Adopt, Adopted, AuditKind, AuditRange, ClaimRequest, Claimed, Committed, KeptAlive, Opened,
    Released,
};
use tenure_core::{Code, Epoch, Hold, StoreResult};

use super::kit::{Kit, reason, version};
use super::race::race;
use super::upkeep::{forgotten, versions, wear};

super::cases! { "adopt":
    adopting_ends_every_session_and_hold,
    adopting_raises_the_floor_of_every_group,
    adopting_keeps_checkpoints,
    adopting_again_goes_on_above,
    adopting_above_the_last_epoch_is_refused,
    claims_under_way_do_not_survive_adopting,
}

pub(super) fn wish(entropy: u128, floor: u64) -> Adopt {
    Adopt { entropy, floor: Epoch::new(floor).unwrap() }
}

pub(super) async fn adopt(kit: &Kit, adopt: Adopt) -> Adopted {
    kit.store.adopt(&adopt).await.unwrap()
}

/// Repeats a call once if it returns [`Code::Reset`], which each older handle may return once.
async fn told<T, F>(call: impl Fn() -> F) -> T
where
    F: Future<Output = StoreResult<T>>,
{
    match call().await {
        Err(error) if error.code() == Code::Reset => call().await.unwrap(),
        answer => answer.unwrap(),
    }
}

async fn adopting_ends_every_session_and_hold(kit: Kit) {
    let kit = kit.fresh().await;
    let other = kit.other_client().await;
    let (a, b) = (kit.join("a").await, other.join("b").await);
    let (mine, theirs) = (kit.hold(&a, "mine").await, other.hold(&b, "theirs").await);
    let adopted = adopt(&kit, wish(7, 0)).await;
    assert_eq!((adopted.sessions, adopted.duties), (2, 2), "{adopted:?}");
    assert_eq!(adopted.incarnation, format!("{:032x}", 7));
    // The adopting handle continues to work.
    assert_eq!(kit.keep_alive(&a, &[mine.clone()]).await, KeptAlive::Ended);
    let committed = kit.commit(&a, &mine, 0, "late").await;
    assert!(matches!(committed, Committed::Fenced { .. }), "{committed:?}");
    assert_ne!(kit.release(&a, &mine).await, Released::Freed);
    // Other handles notice.
    assert_eq!(other.keep_alive(&b, &[theirs.clone()]).await, KeptAlive::Ended);
    let holders = told(|| other.store.holders(&other.group)).await;
    assert!(holders.len() == 2 && holders.iter().all(|it| it.holder.is_none()), "{holders:?}");
    assert_eq!(other.member_ids().await, []);
    let wants = [ClaimRequest::new(theirs.duty.clone())];
    let claimed = other.store.claim(&b, &wants, &reason("late")).await.unwrap();
    assert_eq!(claimed, [Claimed::SessionEnded]);
    assert_eq!(other.keep_alive(&b, &[theirs.clone()]).await, KeptAlive::Ended);
    // A new session can claim, and the audit trail records the expiry of the previous hold.
    let c = other.join("c").await;
    let new = other.hold(&c, "theirs").await;
    assert!(new.epoch > adopted.floor && adopted.floor >= theirs.epoch);
    let entries = other.store.audit(&other.group, AuditRange::first(100)).await.unwrap();
    let lost = entries.iter().filter(|entry| entry.kind == AuditKind::Expired);
    let lost: Vec<_> = lost.map(|entry| (&entry.instance, entry.epoch)).collect();
    assert_eq!(lost, [(&b.instance, Some(theirs.epoch))]);
}

async fn adopting_raises_the_floor_of_every_group(kit: Kit) {
    let kit = kit.fresh().await;
    let a = kit.join("a").await;
    let worn = wear(&kit, &a, "worn", 5).await;
    let given = worn.epoch.get() + 1_000;
    let adopted = adopt(&kit, wish(8, given)).await;
    assert!(adopted.floor.get() >= given);
    // An existing group and a new one, each through this client and a later one.
    let later = kit.other_client().await;
    for kit in [kit.clone(), later] {
        let fresh = Kit { group: kit.fresh().await.group, ..kit.clone() };
        for kit in [kit, fresh] {
            let b = kit.join("b").await;
            for id in ["worn", "new"] {
                let hold = kit.hold(&b, id).await;
                assert!(hold.epoch > adopted.floor, "{hold:?} {adopted:?}");
                kit.release(&b, &hold).await;
            }
        }
    }
}

async fn adopting_keeps_checkpoints(kit: Kit) {
    let kit = kit.fresh().await;
    let a = kit.join("a").await;
    let worn = wear(&kit, &a, "worn", 4).await;
    // The hold is lost, as after a partial restore; the checkpoint's epoch still counts.
    kit.place.lose_epoch(worn.duty.clone()).await;
    let before = (kit.load(&worn.duty).await, kit.store.history(&worn.duty).await.unwrap());
    let adopted = adopt(&kit, wish(9, 0)).await;
    assert_eq!(adopted.duties, 1);
    assert!(adopted.floor >= worn.epoch, "{adopted:?}");
    let after = (kit.load(&worn.duty).await, kit.store.history(&worn.duty).await.unwrap());
    assert_eq!(before, after);
    assert!(after.0.is_some() && after.1.len() == 4);
    let b = kit.join("b").await;
    let hold = kit.hold(&b, "worn").await;
    assert_eq!(kit.commit(&b, &hold, 4, "v5").await, Committed::Saved(version(5)));
    assert_eq!(versions(&kit, &worn.duty).await, [5, 4, 3, 2, 1]);
}

async fn adopting_again_goes_on_above(kit: Kit) {
    let kit = kit.fresh().await;
    let other = kit.other_client().await;
    let first = adopt(&kit, wish(1, 50)).await;
    assert_eq!((first.sessions, first.duties), (0, 0));
    // A group's floor counts as well.
    let a = kit.join("a").await;
    let worn = wear(&kit, &a, "worn", 3).await;
    let floor = forgotten(&kit, &worn.duty).await;
    let second = kit.store.adopt(&wish(2, 0)).await.unwrap();
    assert_eq!((second.sessions, second.duties), (1, 0));
    assert_ne!(first.incarnation, second.incarnation);
    assert!(second.floor >= floor && floor > first.floor);
    // This handle opened the store before both adoptions.
    let again = wish(3, 0);
    let third = told(|| other.store.adopt(&again)).await;
    assert!(third.floor >= second.floor);
    let open = kit.wish("b");
    let opened = told(|| kit.store.open_session(&open)).await;
    assert_eq!(opened, Opened::Open(open.session()));
    assert!(kit.hold(&open.session(), "worn").await.epoch > third.floor);
}

async fn adopting_above_the_last_epoch_is_refused(kit: Kit) {
    let kit = kit.fresh().await;
    let a = kit.join("a").await;
    let all = Adopt { entropy: 4, floor: Epoch::MAX_VALUE };
    assert_eq!(kit.store.adopt(&all).await.unwrap_err().code(), Code::Exhausted);
    kit.hold(&a, "d").await;
}

/// Despite concurrent claims, no earlier hold stays valid and no old epoch is granted.
async fn claims_under_way_do_not_survive_adopting(kit: Kit) {
    let kit = kit.fresh().await;
    for round in 0..5_u64 {
        let mut sessions = Vec::new();
        for racer in 0..6 {
            sessions.push(kit.join(&format!("r{round}x{racer}")).await);
        }
        let answers = race(&kit, 7, |kit, racer| {
            let session = sessions.get(racer).cloned();
            async move {
                let Some(session) = session else {
                    let wish = wish(9, round);
                    return (Some(told(|| kit.store.adopt(&wish)).await.floor), Vec::new());
                };
                let duties = kit.duties(10);
                let wants: Vec<_> = duties.into_iter().map(ClaimRequest::new).collect();
                let why = reason("race");
                (None, told(|| kit.store.claim(&session, &wants, &why)).await)
            }
        })
        .await;
        let floor = answers.iter().find_map(|(floor, _)| *floor).unwrap();
        for hold in answers.into_iter().flat_map(|(_, claimed)| claimed).filter_map(hold_of) {
            // Granted before the adoption, so lost: these sessions are granted nothing afterwards.
            assert!(hold.epoch <= floor, "{hold:?} {floor}");
        }
        for session in &sessions {
            assert_eq!(kit.keep_alive(session, &[]).await, KeptAlive::Ended);
        }
        let holders = told(|| kit.store.holders(&kit.group)).await;
        assert!(holders.iter().all(|holder| holder.holder.is_none()), "{holders:?}");
    }
}

fn hold_of(claimed: Claimed) -> Option<Hold> {
    match claimed {
        Claimed::Granted(hold) | Claimed::Already(hold) => Some(hold),
        _ => None,
    }
}
