//! Contract 15: group documents, and the list of groups.

use tenure_core::store::{GroupDocument, Replaced};
use tenure_core::{Document, Version};

use super::kit::{Kit, doc, version};

super::cases! { "group":
    a_group_starts_without_a_document,
    a_document_is_seen_by_every_client,
    a_stale_replacement_changes_nothing,
    a_document_can_be_emptied,
    documents_of_two_groups_are_apart,
    a_group_is_listed_once_it_is_used,
}

async fn replace(kit: &Kit, expected: u64, text: &str) -> Replaced {
    let expected = version(expected);
    kit.store.replace_group_document(&kit.group, expected, &doc(text)).await.unwrap()
}

async fn read(kit: &Kit) -> GroupDocument {
    kit.store.group_document(&kit.group).await.unwrap()
}

async fn a_group_starts_without_a_document(kit: Kit) {
    assert_eq!(read(&kit).await, GroupDocument::default());
    assert_eq!(read(&kit).await.version, Version::ZERO);
}

async fn a_document_is_seen_by_every_client(kit: Kit) {
    assert_eq!(replace(&kit, 0, "shards=8").await, Replaced::Saved(version(1)));
    assert_eq!(replace(&kit, 1, "shards=16").await, Replaced::Saved(version(2)));
    let seen = read(&kit.other_client().await).await;
    assert_eq!(seen, GroupDocument { version: version(2), document: doc("shards=16") });
}

async fn a_stale_replacement_changes_nothing(kit: Kit) {
    replace(&kit, 0, "one").await;
    for wrong in [0, 2, 9] {
        assert_eq!(replace(&kit, wrong, "two").await, Replaced::Conflict { stored: version(1) });
    }
    assert_eq!(read(&kit).await.document, doc("one"));
}

async fn a_document_can_be_emptied(kit: Kit) {
    replace(&kit, 0, "one").await;
    assert_eq!(replace(&kit, 1, "").await, Replaced::Saved(version(2)));
    assert_eq!(read(&kit).await.document, Document::default());
}

async fn documents_of_two_groups_are_apart(kit: Kit) {
    let other = Kit::new(kit.place.clone()).await;
    replace(&kit, 0, "here").await;
    assert_eq!(read(&other).await, GroupDocument::default());
    assert_eq!(replace(&other, 0, "there").await, Replaced::Saved(version(1)));
    assert_eq!(read(&kit).await.document, doc("here"));
}

async fn a_group_is_listed_once_it_is_used(kit: Kit) {
    let (by_member, by_document) =
        (Kit::new(kit.place.clone()).await, Kit::new(kit.place.clone()).await);
    by_member.join("a").await;
    replace(&by_document, 0, "x").await;
    let groups = kit.store.groups().await.unwrap();
    assert!(groups.is_sorted());
    assert!(groups.contains(&by_member.group) && groups.contains(&by_document.group));
    assert!(!groups.contains(&kit.group));
}
