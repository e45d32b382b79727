//! Replicas.

use std::time::Duration;

use uuid::Uuid;

use crate::place::Place;

pub async fn a_replica_is_found_until_it_ends(place: Place) {
    let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let storage = &place.storage;
    assert_eq!(storage.replica(one).await.unwrap(), None);
    storage.announce(one, "10.0.0.1:8040").await.unwrap();
    storage.announce(two, "10.0.0.2:8040").await.unwrap();
    let other = place.open().await;
    assert_eq!(other.replica(one).await.unwrap().as_deref(), Some("10.0.0.1:8040"));
    assert_eq!(other.replica(two).await.unwrap().as_deref(), Some("10.0.0.2:8040"));
    storage.announce(one, "10.0.0.3:8040").await.unwrap();
    assert_eq!(other.replica(one).await.unwrap().as_deref(), Some("10.0.0.3:8040"));
    storage.withdraw(one).await.unwrap();
    storage.withdraw(one).await.unwrap();
    assert_eq!(other.replica(one).await.unwrap(), None);
    assert_eq!(other.replica(two).await.unwrap().as_deref(), Some("10.0.0.2:8040"));
}

pub async fn a_replica_that_is_not_seen_is_gone(place: Place) {
    let storage = &place.storage;
    for number in 1..=3 {
        storage.announce(Uuid::from_u128(number), "10.0.0.1:8040").await.unwrap();
    }
    let old = "address = '10.0.0.1:8040'";
    place.age("switchboard_replica", "seen_at", Duration::from_secs(61), old).await;
    assert_eq!(storage.replica(Uuid::from_u128(1)).await.unwrap(), None);
    // An announcement restores it; the expired ones are deleted.
    storage.announce(Uuid::from_u128(1), "10.0.0.1:8040").await.unwrap();
    assert!(storage.replica(Uuid::from_u128(1)).await.unwrap().is_some());
    assert_eq!(place.execute("SELECT count(*) FROM switchboard_replica").await, 1);
}

/// A replica that knows only the first two migrations would misread newer data, of any migration
/// but the eleventh: that one replaces functions, which older replicas may call.
pub async fn a_replica_of_an_older_version_is_refused(place: Place) {
    let may_go_on = "SELECT count(*) FROM switchboard_migration
        WHERE number NOT IN (1, 2, 11) AND breaking = ''";
    assert_eq!(place.execute(may_go_on).await, 0);
}
