//! Heartbeat sender: a single heartbeat, or heartbeats at an interval.

use std::io;
use std::time::Duration;

use tenure_core::BoxFuture;
use tenure_wire::heartbeat::{Counters, Health, STOPPING};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::{ConnectorError, ConnectorStatus, CounterSource, HeartbeatAccepted, HeartbeatClient};

/// Default interval.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(120);
/// The shortest interval.
pub const MIN_INTERVAL: Duration = Duration::from_secs(30);
/// The longest interval.
pub const MAX_INTERVAL: Duration = Duration::from_secs(300);

/// Sender of one connector's heartbeats.
#[derive(Debug)]
pub struct HeartbeatSender {
    /// Connection to the switchboard.
    pub client: HeartbeatClient,
    /// The connector.
    pub status: ConnectorStatus,
    /// Its counters.
    pub counters: CounterSource,
}

/// Command to a repeating sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatCommand {
    /// Send a heartbeat now, and the next one after a whole interval.
    SendNow,
    /// Send a last heartbeat and end. A second one does not wait for its response.
    Stop,
}

/// Report of a repeating sender.
#[derive(Debug)]
pub enum HeartbeatReport {
    /// A heartbeat was accepted.
    Accepted(HeartbeatAccepted),
    /// Counters could not be read, or a heartbeat failed; the next one follows at the interval.
    Failed(ConnectorError),
    /// The connector has ended.
    ConnectorGone,
}

/// Receiver of a sender's reports. An error stops the sender.
type ReportSink<'a> = &'a mut (dyn FnMut(HeartbeatReport) -> io::Result<()> + Send + 'a);

impl HeartbeatSender {
    /// Sends one heartbeat.
    pub fn send(&self) -> BoxFuture<'_, Result<HeartbeatAccepted, ConnectorError>> {
        Box::pin(async {
            let counters = self.counters.read(false)?;
            self.client.send(self.status.envelope(counters)).await
        })
    }

    /// Sends heartbeats at an interval until it is stopped, or until `is_alive` returns false; then
    /// sends a last one that reports the end.
    pub fn repeat<'a>(
        &'a self,
        every: Duration,
        commands: &'a mut mpsc::Receiver<HeartbeatCommand>,
        is_alive: &'a (dyn Fn() -> bool + Sync),
        report: ReportSink<'a>,
    ) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut counters = Counters::default();
            loop {
                tokio::select! {
                    biased;
                    command = commands.recv() => match command {
                        Some(HeartbeatCommand::SendNow) => ticks.reset(),
                        Some(HeartbeatCommand::Stop) | None => break,
                    },
                    _ = ticks.tick() => {}
                }
                if !is_alive() {
                    report(HeartbeatReport::ConnectorGone)?;
                    break;
                }
                self.send_again(&self.status, &mut counters, report).await?;
            }
            let mut last = self.status.clone();
            (last.state, last.message) = (Health::Degraded, Some(STOPPING.to_owned()));
            let second_stop =
                async { while let Some(HeartbeatCommand::SendNow) = commands.recv().await {} };
            tokio::select! {
                sent = self.send_again(&last, &mut counters, report) => sent,
                () = second_stop => Ok(()),
            }
        })
    }

    /// Sends one of several heartbeats. If the counters cannot be read, it sends their last values:
    /// the connector is alive nevertheless.
    async fn send_again(
        &self,
        status: &ConnectorStatus,
        counters: &mut Counters,
        report: ReportSink<'_>,
    ) -> io::Result<()> {
        match self.counters.read(true) {
            Ok(read) => *counters = read,
            Err(error) => report(HeartbeatReport::Failed(error))?,
        }
        report(match self.client.send(status.envelope(*counters)).await {
            Ok(accepted) => HeartbeatReport::Accepted(accepted),
            Err(error) => HeartbeatReport::Failed(error),
        })
    }
}
