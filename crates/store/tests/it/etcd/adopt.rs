//! Adopting a store while its members are active.

use tenure_core::store::{Adopt, ClaimRequest, KeptAlive};
use tenure_core::{DutyKey, Epoch, GroupName};

use super::kit::*;

/// A member of an early group joins again while a late group is still being read: it must not be
/// granted an epoch that the late group already had.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_joins_again_is_granted_above_the_floor() {
    let server = server();
    let (store, other) = (open(&server).await, open(&server).await);
    let mut late = wish("z", 3600);
    late.group = GroupName::new("z").unwrap();
    store.open_session(&late).await.unwrap();
    let floor = Epoch::new(1_000_000).unwrap();
    let want = |n| ClaimRequest { duty: DutyKey::new("z", format!("d{n}")).unwrap(), floor };
    let wants: Vec<_> = (0..8_000).map(want).collect();
    store.claim(&late.session(), &wants, &reason()).await.unwrap();
    let first = join(&*other, "first").await;
    let adopt = Adopt { entropy: 77, floor: Epoch::ZERO };
    let joining = async {
        while other.keep_alive(&first, None, &[]).await.unwrap() != KeptAlive::Ended {}
        let again = join(&*other, "again").await;
        hold(&*other, &again, "new").await
    };
    let (adopted, held) = tokio::join!(store.adopt(&adopt), joining);
    let adopted = adopted.unwrap();
    assert_eq!((adopted.duties >= 8_000, adopted.floor.get()), (true, 1_000_001));
    assert!(held.epoch > adopted.floor, "{} was granted below {}", held.epoch, adopted.floor);
}
