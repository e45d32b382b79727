//! How often duties move when every member is replaced by a newer one.

use std::sync::Arc;

use tenure::{Change, Duties, Guard, Label, Leaver};
use tokio::task::JoinHandle;

use super::player::*;

const DUTIES: u32 = 12;
const MEMBERS: usize = 4;

struct Replica {
    witness: Arc<Witness>,
    leaver: Leaver,
    running: JoinHandle<()>,
}

impl Replica {
    async fn start(place: &Place, group: &tenure::GroupName, revision: &str) -> Self {
        let witness = Witness::new();
        let join = join(place, group, Duties::Shards(DUTIES)).observer(witness.clone());
        let membership = join.revision(Label::new(revision).unwrap()).start().await.unwrap();
        let leaver = membership.leaver();
        let work = |guard: Guard| async move {
            guard.stopping().await;
            Ok::<_, std::convert::Infallible>(())
        };
        let running = tokio::spawn(async move { membership.run(work).await.unwrap() });
        witness.saw(Change::Joined, 0).await;
        Self { witness, leaver, running }
    }

    async fn leave(self) {
        self.leaver.leave();
        soon("the end", self.running).await.unwrap();
    }

    fn held(&self) -> usize {
        self.witness.held.borrow().len()
    }
}

/// How often a duty was granted to any of them.
fn grants(witnesses: &[Arc<Witness>]) -> usize {
    let of = |witness: &Arc<Witness>| {
        let records = witness.records.lock().unwrap();
        let grants = [Change::Acquired, Change::TakenOver];
        records.iter().filter(|record| grants.contains(&record.change)).count()
    };
    witnesses.iter().map(of).sum()
}

/// Waits until each of these replicas holds its share.
async fn settled(replicas: &[Replica], share: usize) {
    for replica in replicas {
        let mut held = replica.witness.held.subscribe();
        soon("its share", held.wait_for(|held| held.len() == share)).await.unwrap();
    }
    let all: usize = replicas.iter().map(Replica::held).sum();
    assert_eq!(all, DUTIES as usize);
}

async fn first_ones(place: &Place, group: &tenure::GroupName) -> Vec<Replica> {
    let mut replicas = Vec::new();
    for _ in 0..MEMBERS {
        replicas.push(Replica::start(place, group, "v1").await);
    }
    settled(&replicas, DUTIES as usize / MEMBERS).await;
    replicas
}

/// With surge: the new one is there before the old one leaves, and each duty moves once.
#[tokio::test]
async fn an_update_with_surge_moves_each_duty_once() {
    everywhere(|place| async move {
        let group = group();
        let mut replicas = first_ones(&place, &group).await;
        let mut witnesses: Vec<_> = replicas.iter().map(|one| one.witness.clone()).collect();
        let before = grants(&witnesses);
        for _ in 0..MEMBERS {
            let newer = Replica::start(&place, &group, "v2").await;
            witnesses.push(newer.witness.clone());
            replicas.push(newer);
            replicas.remove(0).leave().await;
            settled(&replicas, DUTIES as usize / MEMBERS).await;
        }
        let moves = grants(&witnesses) - before;
        assert_eq!(moves, DUTIES as usize, "{}", place.name);
        for replica in replicas {
            replica.leave().await;
        }
    })
    .await;
}

/// Without surge: the old one leaves first, so its duties go to the others and come back.
#[tokio::test]
async fn an_update_without_surge_moves_at_most_twice_the_duties() {
    everywhere(|place| async move {
        let group = group();
        let mut replicas = first_ones(&place, &group).await;
        let mut witnesses: Vec<_> = replicas.iter().map(|one| one.witness.clone()).collect();
        let before = grants(&witnesses);
        for _ in 0..MEMBERS {
            replicas.remove(0).leave().await;
            settled(&replicas, DUTIES as usize / (MEMBERS - 1)).await;
            let newer = Replica::start(&place, &group, "v1").await;
            witnesses.push(newer.witness.clone());
            replicas.push(newer);
            settled(&replicas, DUTIES as usize / MEMBERS).await;
        }
        let moves = grants(&witnesses) - before;
        assert!(moves <= 2 * DUTIES as usize, "{}: {moves}", place.name);
        for replica in replicas {
            replica.leave().await;
        }
    })
    .await;
}
