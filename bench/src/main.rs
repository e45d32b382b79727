//! `cargo xtask bench store`: claim, keep-alive and commit beside the cheapest raw statement. Both
//! are measured in turns in the same run, on the same server, with the same durability; the ratio
//! of their medians is what counts.
//!
//! `cargo xtask bench roster`: who should hold what, for a million duties.
//!
//! Bars that are missed make the command fail.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints, and measures by the clock"
)]

mod etcd;
mod measure;
mod ours;
mod postgres;
mod redis;
mod roster;
mod sqlite;

use anyhow::{Result, bail};

use measure::Row;

/// How many holds an instance has.
const SIZES: [usize; 3] = [1, 100, 10_000];

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["roster"] => roster::run(),
        ["store", ..] => stores(&words[1..]).await,
        _ => bail!("usage: cargo xtask bench roster | store [sqlite] [postgres] [redis] [etcd]"),
    }
}

/// Measures the stores that are named; all of them when there are none.
async fn stores(wanted: &[String]) -> Result<()> {
    let is_wanted = |store: &str| wanted.is_empty() || wanted.iter().any(|word| word == store);
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
    println!("{}", measure::HEADING);
    for row in &rows {
        println!("{row}");
    }
    let missed: Vec<&Row> = rows.iter().filter(|row| !row.is_met()).collect();
    match missed.is_empty() {
        true => Ok(()),
        false => bail!("{} bars are missed", missed.len()),
    }
}
