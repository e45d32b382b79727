//! Number of moves when every member is replaced by a newer one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Change, Duties, DutyId, Guard, Label, LeaveHandle, Record, Ttl};
use tokio::task::JoinHandle;

use super::player::*;

const DUTIES: u32 = 12;
const MEMBERS: usize = 4;

struct Replica {
    witness: Arc<Witness>,
    leaver: LeaveHandle,
    running: JoinHandle<()>,
}

/// Duties on which work runs.
type AtWork = Arc<Mutex<BTreeSet<DutyId>>>;

impl Replica {
    async fn start(place: &Place, group: &tenure::GroupName, revision: &str) -> Self {
        // Longer than in other tests: a live member whose session expires adds moves.
        Self::start_with(place, group, revision, Duration::from_secs(6), AtWork::default()).await
    }

    async fn start_with(
        place: &Place,
        group: &tenure::GroupName,
        revision: &str,
        ttl: Duration,
        at_work: AtWork,
    ) -> Self {
        let witness = Witness::new();
        let ttl = Ttl::new(ttl).unwrap();
        let join = join_for(place, group, ttl, Duties::Shards(DUTIES)).observer(witness.clone());
        let membership = join.revision(Label::new(revision).unwrap()).start().await.unwrap();
        let leaver = membership.leaver();
        let work = move |guard: Guard| {
            let at_work = at_work.clone();
            async move {
                let duty = &guard.duty().id;
                assert!(at_work.lock().unwrap().insert(duty.clone()), "{duty} has two holders");
                guard.stopping().await;
                at_work.lock().unwrap().remove(duty);
                Ok::<_, std::convert::Infallible>(())
            }
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

/// Counts the records for which `counts` is true.
fn count(witnesses: &[Arc<Witness>], counts: impl Fn(&Record) -> bool) -> usize {
    let of = |witness: &Arc<Witness>| {
        witness.records.lock().unwrap().iter().filter(|record| counts(record)).count()
    };
    witnesses.iter().map(of).sum()
}

/// Counts the grants to all members.
fn grants(witnesses: &[Arc<Witness>]) -> usize {
    count(witnesses, |record| matches!(record.change, Change::Acquired | Change::TakenOver))
}

/// Returns the moves that a busy machine may add: a duty that was not claimed in time, or was lost
/// by a slow member, is granted once more, and perhaps moves back.
fn detours(witnesses: &[Arc<Witness>]) -> usize {
    let lost = [Change::TakenOver, Change::Expired, Change::Revoked];
    let detours =
        count(witnesses, |record| record.reason == "unclaimed" || lost.contains(&record.change));
    assert!(detours <= DUTIES as usize, "{detours}: this is no detour any more");
    2 * detours
}

/// Waits until these replicas hold everything, each its share unless there were detours.
async fn settled(replicas: &[Replica], witnesses: &[Arc<Witness>], share: usize) {
    let mut again = tokio::time::interval(Duration::from_millis(20));
    let even = async {
        loop {
            again.tick().await;
            let held: Vec<_> = replicas.iter().map(Replica::held).collect();
            let all = held.iter().sum::<usize>() == DUTIES as usize;
            let even = held.iter().all(|held| *held == share);
            if all && (even || detours(witnesses) > 0) {
                return;
            }
        }
    };
    soon("their shares", even).await;
}

type Witnesses = Vec<Arc<Witness>>;

async fn first_ones(place: &Place, group: &tenure::GroupName) -> (Vec<Replica>, Witnesses) {
    let mut replicas = Vec::new();
    for _ in 0..MEMBERS {
        replicas.push(Replica::start(place, group, "v1").await);
    }
    let witnesses: Vec<_> = replicas.iter().map(|one| one.witness.clone()).collect();
    settled(&replicas, &witnesses, DUTIES as usize / MEMBERS).await;
    (replicas, witnesses)
}

/// With surge a new member joins before an old one leaves, and each duty moves once.
#[tokio::test]
async fn an_update_with_surge_moves_each_duty_once() {
    everywhere(|place| async move {
        let group = group();
        let (mut replicas, mut witnesses) = first_ones(&place, &group).await;
        let before = grants(&witnesses);
        for _ in 0..MEMBERS {
            let newer = Replica::start(&place, &group, "v2").await;
            witnesses.push(newer.witness.clone());
            replicas.push(newer);
            replicas.remove(0).leave().await;
            settled(&replicas, &witnesses, DUTIES as usize / MEMBERS).await;
        }
        let (moves, detours) = (grants(&witnesses) - before, detours(&witnesses));
        assert!(moves >= DUTIES as usize, "{}: {moves}", place.name);
        assert!(moves <= DUTIES as usize + detours, "{}: {moves}, {detours}", place.name);
        for replica in replicas {
            replica.leave().await;
        }
    })
    .await;
}

/// Without surge an old member leaves first, so its duties move to the others and back.
#[tokio::test]
async fn an_update_without_surge_moves_at_most_twice_the_duties() {
    everywhere(|place| async move {
        let group = group();
        let (mut replicas, mut witnesses) = first_ones(&place, &group).await;
        let before = grants(&witnesses);
        for _ in 0..MEMBERS {
            replicas.remove(0).leave().await;
            settled(&replicas, &witnesses, DUTIES as usize / (MEMBERS - 1)).await;
            let newer = Replica::start(&place, &group, "v1").await;
            witnesses.push(newer.witness.clone());
            replicas.push(newer);
            settled(&replicas, &witnesses, DUTIES as usize / MEMBERS).await;
        }
        let (moves, detours) = (grants(&witnesses) - before, detours(&witnesses));
        assert!(moves <= 2 * DUTIES as usize + detours, "{}: {moves}, {detours}", place.name);
        for replica in replicas {
            replica.leave().await;
        }
    })
    .await;
}

/// Waits until the document of a group has this TTL.
async fn agreed(place: &Place, group: &tenure::GroupName, ttl: Duration) {
    let store = place.store().await;
    let line = format!("\nttl_ms {}\n", ttl.as_millis());
    let mut again = tokio::time::interval(Duration::from_millis(20));
    let agreed = async {
        loop {
            again.tick().await;
            let document = store.group_document(group).await.unwrap().document;
            if String::from_utf8_lossy(document.as_bytes()).contains(&line) {
                return;
            }
        }
    };
    soon(ttl, agreed).await;
}

/// The group has the longest TTL of its members: the new one from the first new member on, or from
/// the last.
#[tokio::test]
async fn an_update_changes_the_ttl() {
    everywhere(|place| async move {
        let (group, at_work) = (group(), AtWork::default());
        let [short, long] = [6, 9].map(Duration::from_secs);
        let start = |ttl| Replica::start_with(&place, &group, "v1", ttl, at_work.clone());
        let (mut replicas, mut witnesses) = (Vec::new(), Vec::new());
        for (ttl, first, last) in [(short, short, short), (long, long, long), (short, long, short)]
        {
            for n in 1..=MEMBERS {
                let newer = start(ttl).await;
                witnesses.push(newer.witness.clone());
                replicas.push(newer);
                if replicas.len() > MEMBERS {
                    replicas.remove(0).leave().await;
                }
                agreed(&place, &group, if n < MEMBERS { first } else { last }).await;
            }
            settled(&replicas, &witnesses, DUTIES as usize / MEMBERS).await;
        }
        for replica in replicas {
            replica.leave().await;
        }
    })
    .await;
}
