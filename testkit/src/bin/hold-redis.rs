//! Starts a Redis, prints its URL, and waits to be killed: the owner in the tests of the guard.
#![allow(clippy::print_stdout, reason = "the test reads the URL from standard output")]

use std::io::{self, Read};

use testkit::{RedisOptions, RedisServer};

fn main() -> anyhow::Result<()> {
    let redis = RedisServer::start(RedisOptions::default())?;
    println!("{}", redis.port());
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
