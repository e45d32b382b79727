//! etcd: bare leases and compare transactions of the same client on the same server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure_etcd::{Client, Compare, DeleteRange, KeepAlive, Limits, Txn, TxnOp};
use tokio::task::JoinSet;

use crate::SIZES;
use crate::measure::{KEEP_ALIVES, OperationRow, OperationTimes, rounds, table, timed};
use crate::ours::{DOCUMENT, Ours};

/// Most operations that etcd accepts in one transaction.
const OPERATIONS: usize = 128;

/// Transactions in flight at the same time.
const CONCURRENT_TRANSACTIONS: usize = 64;

struct RawEtcd {
    client: Client,
    lease: i64,
    stream: KeepAlive,
    prefix: String,
    holds: usize,
}

impl RawEtcd {
    async fn new(host: &str, holds: usize) -> Result<Self> {
        let client = Client::connect(host, &Limits::default()).await?;
        let lease = client.lease_grant(0, 3600).await?.id;
        let (stream, _) = client.lease_keep_alive(lease).await?;
        let prefix = format!("raw{holds}-{}/", std::process::id());
        Ok(Self { client, lease, stream, prefix, holds })
    }

    fn key(&self, kind: &str, n: usize) -> String {
        format!("{}{kind}/duty-{n}", self.prefix)
    }

    /// Sends transactions concurrently.
    async fn send(&self, txns: Vec<Txn>) -> Result<Duration> {
        let sending = async {
            let (mut running, mut txns) = (JoinSet::new(), txns.into_iter());
            loop {
                while running.len() < CONCURRENT_TRANSACTIONS {
                    let Some(txn) = txns.next() else { break };
                    running.spawn(one(self.client.clone(), txn));
                }
                match running.join_next().await {
                    Some(done) => done??,
                    None => return Ok(()),
                }
            }
        };
        Ok(timed(sending).await?.0)
    }

    /// Sends one message on the open stream, for any number of keys of the lease.
    async fn keep_alive(&mut self) -> Result<Duration> {
        let asking = async {
            let answer = self.stream.extend().await?;
            ensure!(answer.ttl > 0, "the lease has ended");
            Ok(())
        };
        Ok(timed(asking).await?.0)
    }

    async fn claim(&mut self) -> Result<Duration> {
        let [first, end] = ['/', '0'].map(|last| format!("{}lease{last}", self.prefix));
        self.client.delete_range(&DeleteRange::between(first, end)).await?;
        let put = |n| TxnOp::put_leased(self.key("lease", n), "me", self.lease);
        let places: Vec<usize> = (0..self.holds).collect();
        let txn = |part: &[usize]| {
            let free = |n: &usize| Compare::mod_revision(self.key("lease", *n), 0);
            let compares: Vec<Compare> = part.iter().map(free).collect();
            Txn::new().when(compares).and_then(part.iter().map(|n| put(*n)).collect::<Vec<_>>())
        };
        self.send(places.chunks(OPERATIONS).map(txn).collect()).await
    }

    /// Sends one compare and one write per key.
    async fn commit(&mut self, round: usize) -> Result<Duration> {
        let txn = |n| {
            let key = self.key("checkpoint", n);
            let fits = Compare::version(key.as_str(), round as i64);
            Txn::new().when([fits]).and_then([TxnOp::put(key, DOCUMENT)])
        };
        self.send((0..self.holds).map(txn).collect()).await
    }
}

async fn one(client: Client, txn: Txn) -> Result<()> {
    ensure!(client.txn(&txn).await?.succeeded, "a raw transaction was refused");
    Ok(())
}

pub async fn run() -> Result<Vec<OperationRow>> {
    let url = testkit::service(testkit::TEST_ETCD).context("TENURE_TEST_ETCD is not set")?;
    let hosts = url.trim_start_matches("etcd://");
    let host = hosts.split(',').next().context("TENURE_TEST_ETCD names no host")?;
    let mut rows = Vec::new();
    for holds in SIZES {
        // Ten thousand raw transactions take seconds.
        let rounds = if holds > 100 { 7 } else { rounds(holds) };
        let mut raw = RawEtcd::new(host, holds).await?;
        let prefix = format!("bench{holds}-{}/", std::process::id());
        let mut ours = Ours::new(&format!("{url}?prefix={prefix}"), holds).await?;
        let mut times: OperationTimes = Default::default();
        for _ in 0..rounds {
            times[0].push(raw.claim().await?);
            times[1].push(ours.claim().await?);
            times[6].push(ours.keep_alive().await?);
            ours.release().await?;
        }
        ours.claim().await?;
        ours.keep_alive().await?;
        for _ in 0..KEEP_ALIVES {
            times[2].push(raw.keep_alive().await?);
            times[3].push(ours.keep_alive().await?);
        }
        for round in 0..rounds {
            times[4].push(raw.commit(round).await?);
            times[5].push(ours.commit().await?);
        }
        rows.extend(table("etcd", holds, times, 2.0));
    }
    Ok(rows)
}
