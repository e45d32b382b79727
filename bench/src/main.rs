//! `cargo xtask bench store`: claim, keep-alive and commit, compared with the cheapest raw
//! statement. Both are measured alternately in the same run, on the same server, with the same
//! durability; the result is the ratio of their medians.
//!
//! `cargo xtask bench roster`: planned holders for a million duties.
//!
//! `cargo xtask bench failover`: time for which a duty has no holder.
//!
//! `cargo xtask bench ingest`: events that the switchboard ingests.
//!
//! `cargo xtask bench heartbeat`: CPU cost of the heartbeats of ten thousand connectors.
//!
//! `cargo xtask bench bucket`: the buckets of a million entities, and a filter of many lines.
//!
//! `cargo xtask bench api`: a commit through the local API, beside one by the library.
//!
//! `cargo xtask bench idle`: processor time of `tenure run` while nothing happens.
//!
//! The command fails if a bar is missed.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a benchmark prints, and measures by the clock"
)]

mod api;
mod bucket;
mod etcd;
mod failover;
mod heartbeat;
mod idle;
mod ingest;
mod measure;
mod ours;
mod postgres;
mod redis;
mod roster;
mod sqlite;

use anyhow::{Result, bail};

/// Holds per instance.
const SIZES: [usize; 3] = [1, 100, 10_000];

const USAGE: &str = "usage: cargo xtask bench roster | store [sqlite] [postgres] [redis] [etcd] \
     | failover [sqlite] [postgres] [redis] [etcd] [handover] [crash] [settle] \
     | ingest [sqlite] [postgres] | heartbeat [small] | bucket \
     | api [sqlite] [postgres] [redis] [etcd] | idle [file] [sqlite] [postgres] [redis] [etcd]";

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        // Ingest has its own runtimes, for the server and its clients.
        Some((what, wanted)) if what == "ingest" => ingest::run(wanted),
        _ => tokio::runtime::Runtime::new()?.block_on(others(words)),
    }
}

async fn others(words: Vec<String>) -> Result<()> {
    let Some((what, wanted)) = words.split_first() else { bail!(USAGE) };
    // Further words name the stores to measure; without any, all are measured.
    let is_wanted = |store: &str| wanted.is_empty() || wanted.iter().any(|word| word == store);
    match (what.as_str(), wanted) {
        ("roster", []) => roster::run(),
        ("bucket", []) => bucket::run(),
        ("store", _) => stores(is_wanted).await,
        ("api", _) => api::run(is_wanted).await,
        ("idle", _) => idle::run(is_wanted).await,
        ("failover", _) => failover::run(wanted).await,
        ("heartbeat", _) => heartbeat::run(wanted).await,
        ("replica", [url]) => heartbeat::serve_until_alone(url).await,
        ("hold", [url, group]) => failover::hold_until_killed(url, group).await,
        _ => bail!(USAGE),
    }
}

async fn stores(is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    let mut rows = Vec::new();
    if is_wanted("sqlite") {
        rows.extend(sqlite::run().await?);
    }
    if is_wanted("postgres") {
        rows.extend(postgres::run().await?);
    }
    if is_wanted("redis") {
        rows.extend(redis::run().await?);
    }
    if is_wanted("etcd") {
        rows.extend(etcd::run().await?);
    }
    measure::conclude(measure::HEADING, &rows)
}
