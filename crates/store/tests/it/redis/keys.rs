//! Keys without a TTL, and sessions with very many holds.

use tenure_core::store::{ClaimRequest, Closed, Evict, Evicted};
use tenure_core::{Document, DutyKey, Session, Store, Version};

use super::kit::{
    commit, duty, group, hold, join, keep, keys, number, open, reason, release, server,
};

/// A checkpoint with a TTL would be lost if its source is quiet for long enough.
#[tokio::test]
async fn nothing_that_must_last_has_a_ttl() {
    let server = server();
    let store = open(&server).await;
    let (a, b) = (join(&store, "a").await, join(&store, "b").await);
    let first = hold(&store, &a, "x").await;
    commit(&store, &a, &first, 0).await.unwrap();
    keep(&store, &a, &first).await;
    let document = Document::new(*b"shards=8").unwrap();
    store.replace_group_document(&group(), Version::ZERO, &document).await.unwrap();
    release(&store, &a, &first).await;
    let second = hold(&store, &b, "x").await;
    commit(&store, &b, &second, 1).await.unwrap();
    let now = Evict::Now;
    store.evict(&group(), &b.instance, now, &reason()).await.unwrap();
    store.close_session(&a, &reason()).await.unwrap();
    let lasting = [
        "poll:audit",
        "poll:checkpoint:x",
        "poll:document",
        "poll:fence:x",
        "poll:grants",
        "poll:history:x",
        "tenure:groups",
        "tenure:store",
    ];
    for key in lasting {
        assert_eq!(number(&server, &["pttl", key]), -1, "{key}");
    }
    // All other keys record an end, and expire.
    for key in keys(&server) {
        let brief = key.starts_with("poll:spent:") || key.starts_with("poll:barred:");
        assert_eq!(brief, !lasting.contains(&&*key), "{key}");
        assert_eq!(brief, number(&server, &["pttl", &key]) > 0, "{key}");
    }
}

async fn many(store: &dyn Store, session: &Session) -> Vec<DutyKey> {
    let duties: Vec<_> = (0..1_200).map(|n| duty(&format!("d{n:04}"))).collect();
    let wants: Vec<_> = duties.iter().cloned().map(ClaimRequest::new).collect();
    store.claim(session, &wants, &reason()).await.unwrap();
    duties
}

async fn held(store: &dyn Store) -> usize {
    let holders = store.holders(&group()).await.unwrap();
    holders.iter().filter(|now| now.holder.is_some()).count()
}

/// More holds than one script frees: further scripts free the rest.
#[tokio::test]
async fn closing_and_evicting_free_any_number_of_holds() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    many(&store, &a).await;
    assert_eq!(held(&store).await, 1_200);
    let closed = store.close_session(&a, &reason()).await.unwrap();
    assert_eq!((closed, held(&store).await), (Closed::Closed, 0));
    let b = join(&store, "b").await;
    many(&store, &b).await;
    let evicted = store.evict(&group(), &b.instance, Evict::Now, &reason()).await;
    assert_eq!(evicted.unwrap(), Evicted::Evicted { ended: 1_200 });
    assert_eq!(held(&store).await, 0);
}
