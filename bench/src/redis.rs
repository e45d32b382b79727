//! Redis: pipelined raw commands on one connection to the same server.

use std::time::Duration;

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Script};

use crate::SIZES;
use crate::measure::{KEEP_ALIVES, OperationRow, OperationTimes, rounds, table, timed};
use crate::ours::{DOCUMENT, Ours};

/// Plain fenced write: compares the fence, then replaces the value.
const COMMIT: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('HGET', KEYS[2], 'version') == ARGV[2] then
    return redis.call('HSET', KEYS[2], 'version', ARGV[2] + 1, 'document', ARGV[3])
end
return redis.error_reply('FENCED')";

struct RawRedis {
    connection: MultiplexedConnection,
    script: Script,
    prefix: String,
    holds: usize,
}

impl RawRedis {
    async fn new(url: &str, holds: usize) -> Result<Self> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let prefix = format!("raw{holds}-{}:", std::process::id());
        let mut raw = Self { connection, script: Script::new(COMMIT), prefix, holds };
        let mut pipe = redis::pipe();
        for n in 0..holds {
            pipe.set(raw.key("fence", n), 1).ignore();
            pipe.hset(raw.key("checkpoint", n), "version", 0).ignore();
        }
        pipe.query_async::<()>(&mut raw.connection).await?;
        raw.script.load_async(&mut raw.connection).await?;
        Ok(raw)
    }

    fn key(&self, kind: &str, n: usize) -> String {
        format!("{}{kind}:duty-{n}", self.prefix)
    }

    async fn send(&mut self, pipe: impl FnOnce(&Self) -> Pipeline) -> Result<Duration> {
        // Building the commands is part of the work on both sides.
        let before = std::time::Instant::now();
        let pipe = pipe(self);
        let built = before.elapsed();
        let (took, ()) = timed(async { Ok(pipe.query_async(&mut self.connection).await?) }).await?;
        Ok(built + took)
    }

    async fn keep_alive(&mut self) -> Result<Duration> {
        let pipe = |raw: &Self| {
            let mut pipe = redis::pipe();
            for n in 0..raw.holds {
                pipe.pexpire(raw.key("lease", n), 3_600_000).ignore();
            }
            pipe
        };
        self.send(pipe).await
    }

    async fn claim(&mut self) -> Result<Duration> {
        let clear = |raw: &Self| {
            let mut pipe = redis::pipe();
            for n in 0..raw.holds {
                pipe.del(raw.key("lease", n)).ignore();
            }
            pipe
        };
        self.send(clear).await?;
        let pipe = |raw: &Self| {
            let mut pipe = redis::pipe();
            for n in 0..raw.holds {
                let mut set = redis::cmd("SET");
                set.arg(raw.key("lease", n)).arg("me").arg("NX").arg("PX").arg(3_600_000);
                pipe.add_command(set).ignore();
            }
            pipe
        };
        self.send(pipe).await
    }

    async fn commit(&mut self, round: usize) -> Result<Duration> {
        let pipe = |raw: &Self| {
            let mut pipe = redis::pipe();
            for n in 0..raw.holds {
                let mut call = redis::cmd("EVALSHA");
                call.arg(raw.script.get_hash()).arg(2);
                call.arg(raw.key("fence", n)).arg(raw.key("checkpoint", n));
                call.arg(1).arg(round).arg(&DOCUMENT[..]);
                pipe.add_command(call).ignore();
            }
            pipe
        };
        self.send(pipe).await
    }
}

pub async fn run() -> Result<Vec<OperationRow>> {
    let url = testkit::service(testkit::TEST_REDIS).context("TENURE_TEST_REDIS is not set")?;
    let mut rows = Vec::new();
    for holds in SIZES {
        let mut raw = RawRedis::new(&url, holds).await?;
        let prefix = format!("bench{holds}-{}:", std::process::id());
        let mut ours = Ours::new(&format!("{url}?prefix={prefix}"), holds).await?;
        let mut times: OperationTimes = Default::default();
        for _ in 0..rounds(holds) {
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
        for round in 0..rounds(holds) {
            times[4].push(raw.commit(round).await?);
            times[5].push(ours.commit().await?);
        }
        rows.extend(table("redis", holds, times, 2.5));
    }
    Ok(rows)
}
