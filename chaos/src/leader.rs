//! etcd with three members that loses its leader repeatedly.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::wait_until;
use tokio::time::{Instant, sleep, timeout};

use crate::record::now;
use crate::report::ChaosReport;
use crate::run::{ChaosOptions, ChaosRun, judge, say};
use crate::store::StoreUnderTest;

/// Time limit for electing a leader.
const ELECTION: Duration = Duration::from_secs(30);

/// Kills the leader `rounds` times, and judges as after other faults. All duties must be acted on
/// again before the killed member is back, and after it.
pub async fn leader(options: &ChaosOptions, rounds: usize) -> Result<ChaosReport> {
    let place = StoreUnderTest::cluster().await?;
    let world = ChaosRun::new(place, options, options.instances).await?;
    for slot in 0..options.instances {
        world.fleet.lock().await.start(slot, None)?;
    }
    let working = || async {
        timeout(options.patience, world.working()).await.context("not every duty is worked on")
    };
    working().await?;
    let (began, from) = (Instant::now(), now());
    let mut recovered = Duration::ZERO;
    for round in 1..=rounds {
        let killed = world.place.with_etcd(|etcd| {
            wait_until("a leader", ELECTION, || etcd.leader().is_ok())?;
            let leader = etcd.leader()?;
            etcd.kill(leader)?;
            Ok(leader)
        });
        let (killed, since) = (killed.await?, Instant::now());
        working().await?;
        let without = since.elapsed();
        recovered = recovered.max(without);
        sleep(options.ttl).await;
        world.place.with_etcd(move |etcd| etcd.start_again(killed)).await?;
        working().await?;
        let seconds = without.as_secs_f64();
        say(&format!("round {round}: member {killed} was killed, recovered after {seconds:.1} s"));
        sleep(options.ttl).await;
    }
    let until = now();
    world.leave(options.instances).await?;
    let mut report = judge(&world, options, from, until).await?;
    report.lasted = began.elapsed();
    report.faults = BTreeMap::from([("leader", rounds)]);
    report.recovered = Some(recovered);
    Ok(report)
}
