//! Failover of PostgreSQL to its standby: exactly the losses that `tenure doctor` announces may
//! occur.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tenure::guarantee::{self, Level};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::history::{FinalState, RunHistory};
use crate::lost::{Spared, spare};
use crate::record::now;
use crate::report::ChaosReport;
use crate::run::{ChaosOptions, ChaosRun, judge};
use crate::store::StoreUnderTest;

/// Report of a failover.
#[derive(Debug)]
pub struct FailedOver {
    /// Whether the standby had everything that was acknowledged.
    pub synchronous: bool,
    /// Guarantee that `tenure doctor` reported before.
    pub level: Level,
    /// Acknowledged commits that the new primary does not have.
    pub lost: usize,
    /// Lost commits that were acknowledged while the standby still received everything.
    pub lost_before: usize,
    /// Responses of the old primary after the cut that the new one does not have. Asynchronous
    /// replication allows them, and the rest is judged; synchronous replication has none.
    pub spared: Spared,
    /// Everything else.
    pub report: ChaosReport,
}

impl FailedOver {
    /// Returns a finding for each violation of the reported guarantee.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let said = if self.synchronous { Level::ExclusiveEffects } else { Level::AtLeastOnce };
        if self.level != said {
            wrong.push(format!("doctor reports {}, expected {said}", self.level));
        }
        if self.lost_before > 0 {
            wrong.push(format!("{} commits that the standby had are lost", self.lost_before));
        }
        if !self.synchronous && self.spared.commits == 0 {
            wrong.push("nothing was lost, so the run proves nothing".to_owned());
        }
        wrong.extend(self.report.wrong.iter().cloned());
        wrong
    }
}

impl fmt::Display for FailedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.synchronous { "synchronous" } else { "asynchronous" };
        let Self { level, lost, report, .. } = self;
        writeln!(f, "replication          {how}; doctor reports {level}")?;
        writeln!(f, "effects accepted     {}", report.effects)?;
        writeln!(f, "acknowledged, lost   {lost}")?;
        writeln!(f, "  before the cut     {}", self.lost_before)?;
        let (gap, recovered) = (report.longest_gap(), report.recovered.unwrap_or_default());
        writeln!(f, "longest gap          {:.1} s", gap.as_secs_f64())?;
        writeln!(f, "recovered after      {:.1} s", recovered.as_secs_f64())?;
        let Spared { commits, reads, grants } = self.spared;
        write!(f, "lost as reported     {commits} commits, {reads} reads, {grants} grants")?;
        for wrong in self.wrong() {
            write!(f, "\nBROKEN: {wrong}")?;
        }
        Ok(())
    }
}

/// Returns host and port of a URL.
fn address(url: &str) -> Result<&str> {
    let after = url.split_once('@').map(|(_, after)| after);
    after.and_then(|after| after.split('/').next()).context("the URL lacks a user or a host")
}

/// Returns the time at which the server at the other end died. It gave all responses after the cut
/// and before that time alone; from then until the takeover no server responds.
async fn ended(server: &mut TcpStream) -> u64 {
    let mut bytes = [0; 64];
    while server.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    now()
}

/// Cuts the standby off for two TTLs, in which an instance dies, then lets it take over.
pub async fn failover(
    options: &ChaosOptions,
    synchronous: bool,
    patroni: bool,
) -> Result<FailedOver> {
    let place = StoreUnderTest::pair(synchronous, patroni).await?;
    let world = ChaosRun::new(place, options, options.instances).await?;
    for slot in 0..options.instances {
        world.fleet.lock().await.start(slot, None)?;
    }
    timeout(options.patience, world.working()).await.context("the group did not begin")?;
    let level = guarantee::judge(&world.store.survey().await?).level;
    let from = now();
    sleep(options.ttl).await;
    world.place.cut_replication().await?;
    // Commits acknowledged just before may still have been in flight to the standby.
    let cut = now() - Duration::from_millis(500).as_nanos() as u64;
    let killed = world.fleet.lock().await.end(0, Signal::SIGKILL);
    sleep(options.ttl * 2).await;
    let mut primary = TcpStream::connect(address(&world.place.url)?).await?;
    let (failed_over, dead) = tokio::join!(world.place.fail_over(), ended(&mut primary));
    failed_over?;
    let (since, alone) = (Instant::now(), cut..dead);
    if let Some(killed) = killed {
        killed.gone().await?;
    }
    world.fleet.lock().await.start(0, None)?;
    let working = timeout(options.patience, world.working()).await;
    working.context("the group did not recover from the failover")?;
    let recovered = since.elapsed();
    let until = now();
    world.leave(options.instances).await?;
    let mut report = judge(&world, options, from, until).await?;
    report.recovered = Some(recovered);
    let told = world.fleet.lock().await.told()?;
    let stored = FinalState::read(&*world.store, &world.group, options.duties).await?;
    let lost = RunHistory::merge(&world.group, &told, &stored).lost(&stored);
    let lost_before = lost.iter().filter(|answered| **answered < cut).count();
    let mut spared = Spared::default();
    if !synchronous {
        let rest;
        (rest, spared) = spare(&told, &stored, &alone);
        report.wrong = world.fleet.lock().await.problems();
        report.wrong.extend(RunHistory::merge(&world.group, &rest, &stored).judge()?);
    }
    Ok(FailedOver { synchronous, level, lost: lost.len(), lost_before, spared, report })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// The result is the time of death, however long the takeover takes.
    #[tokio::test]
    async fn what_was_told_alone_ends_with_the_primary() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://me:secret@{}/db", listener.local_addr().unwrap());
        let mut primary = TcpStream::connect(address(&url).unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let (died, told) = tokio::sync::oneshot::channel();
        let fail_over = async {
            let before = now();
            drop(server);
            // The standby takes over only after the death was noticed.
            let dead: u64 = told.await.unwrap();
            (before, dead, now())
        };
        let notice = async { died.send(ended(&mut primary).await).unwrap() };
        let ((before, dead, promoted), ()) = tokio::join!(fail_over, notice);
        assert!(before <= dead && dead <= promoted, "{before} {dead} {promoted}");
    }
}
