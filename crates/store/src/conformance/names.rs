//! Names with characters that are special to a store.

use tenure_core::store::{Claimed, Committed, OpenSession, Opened};
use tenure_core::{DutyKey, InstanceId};

use super::kit::{Kit, reason};

super::cases! { "names":
    a_colon, a_slash, a_percent_sign, braces, spaces, an_emoji, quotes, globs,
    five_hundred_and_twelve_bytes,
    names_that_look_alike_stay_apart,
    instance_ids_with_any_character,
}

/// Runs a duty with this id through its whole life.
async fn lives(kit: Kit, id: &str) {
    let duty = DutyKey::new(kit.group.as_str(), id).unwrap();
    let (a, b) = (kit.join("a").await, kit.join("b").await);
    let hold = kit.hold_all(&a, std::slice::from_ref(&duty)).await.remove(0);
    assert_eq!(hold.duty, duty);
    let refused = kit.claim(&b, std::slice::from_ref(&duty)).await.remove(0);
    assert!(matches!(refused, Claimed::HeldBy(Some(by)) if by.instance == a.instance));
    assert!(matches!(kit.commit(&a, &hold, 0, id).await, Committed::Saved(_)));
    assert_eq!(kit.load(&duty).await.unwrap().document.as_bytes(), id.as_bytes());
    assert_eq!(kit.store.history(&duty).await.unwrap().len(), 1);
    kit.release(&a, &hold).await;
    let holders = kit.store.holders(&kit.group).await.unwrap();
    assert_eq!(holders.iter().map(|holder| &holder.duty).collect::<Vec<_>>(), [&duty]);
    assert!(kit.hold_all(&b, &[duty]).await[0].epoch > hold.epoch);
}

async fn a_colon(kit: Kit) {
    lives(kit, "telegram:bot:42").await;
}

async fn a_slash(kit: Kit) {
    lives(kit, "inbox/2026/../x").await;
}

async fn a_percent_sign(kit: Kit) {
    lives(kit, "100%25 %2F %").await;
}

async fn braces(kit: Kit) {
    lives(kit, "{slot}{").await;
}

async fn spaces(kit: Kit) {
    lives(kit, " two  spaces ").await;
}

async fn an_emoji(kit: Kit) {
    lives(kit, "crab 🦀 é").await;
}

async fn quotes(kit: Kit) {
    lives(kit, r#"'; DROP TABLE hold; --"\"#).await;
}

async fn globs(kit: Kit) {
    lives(kit, "*?[a-z]_").await;
}

async fn five_hundred_and_twelve_bytes(kit: Kit) {
    lives(kit, &"🦀".repeat(128)).await;
}

async fn names_that_look_alike_stay_apart(kit: Kit) {
    let a = kit.join("a").await;
    let ids = ["x", "X", "x ", "%78", "x:1", "x%3A1", "lease:x", "fence:x", "é", "e\u{301}"];
    let duties: Vec<_> = ids.iter().map(|id| kit.duty(id)).collect();
    let holds = kit.hold_all(&a, &duties).await;
    for (hold, id) in holds.iter().zip(ids) {
        kit.commit(&a, hold, 0, id).await;
    }
    for (duty, id) in duties.iter().zip(ids) {
        assert_eq!(kit.load(duty).await.unwrap().document.as_bytes(), id.as_bytes());
    }
    assert_eq!(kit.store.holders(&kit.group).await.unwrap().len(), ids.len());
}

async fn instance_ids_with_any_character(kit: Kit) {
    let wish = kit.wish("x");
    let odd = format!("{} : / % {{}} 🦀 '\"", wish.instance.as_str());
    let wish = OpenSession { instance: InstanceId::new(odd).unwrap(), ..wish };
    assert_eq!(kit.open(&wish).await, Opened::Open(wish.session()));
    let hold = kit.hold(&wish.session(), "d").await;
    kit.commit(&wish.session(), &hold, 0, "x").await;
    assert_eq!(kit.load(&hold.duty).await.unwrap().instance, wish.instance);
    assert_eq!(kit.member_ids().await, [wish.instance.clone()]);
    kit.store.close_session(&wish.session(), &reason("done")).await.unwrap();
}
