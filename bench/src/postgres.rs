//! PostgreSQL: raw prepared statements on one connection to the same server.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use crate::SIZES;
use crate::measure::{KEEP_ALIVES, OperationRow, OperationTimes, rounds, table, timed};
use crate::ours::{DOCUMENT, Ours};

struct RawPostgres {
    client: Client,
    keep_alive: Statement,
    claim: Statement,
    commit: Statement,
    names: Vec<String>,
}

impl RawPostgres {
    async fn new(url: &str, holds: usize) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let schema = format!("raw{holds}");
        client
            .batch_execute(&format!(
                "DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema};
                 SET search_path = {schema};
                 CREATE TABLE session (id text PRIMARY KEY, expires timestamptz);
                 CREATE TABLE hold (duty text PRIMARY KEY, owner text, epoch bigint);
                 CREATE TABLE checkpoint
                     (duty text PRIMARY KEY, epoch bigint, version bigint, document bytea);
                 INSERT INTO session VALUES ('me', clock_timestamp());
                 INSERT INTO checkpoint SELECT 'duty-' || n, 1, 0, ''
                     FROM generate_series(0, {holds} - 1) AS n"
            ))
            .await?;
        let keep_alive = "UPDATE session SET expires = clock_timestamp() + interval '1 hour'
            WHERE id = $1 AND expires <= clock_timestamp() + interval '1 hour'";
        let claim = "INSERT INTO hold SELECT duty, 'me', 1 FROM unnest($1::text[]) AS w(duty)
            ON CONFLICT (duty) DO UPDATE SET owner = excluded.owner, epoch = hold.epoch + 1";
        let commit = match holds {
            1 => {
                "UPDATE checkpoint SET version = version + 1, document = $2
                WHERE duty = ($1::text[])[1] AND epoch = 1 AND version = $3"
            }
            _ => {
                "UPDATE checkpoint c SET version = version + 1, document = $2
                FROM unnest($1::text[]) AS w(duty)
                WHERE c.duty = w.duty AND epoch = 1 AND version = $3"
            }
        };
        Ok(Self {
            keep_alive: client.prepare(keep_alive).await?,
            claim: client.prepare(claim).await?,
            commit: client.prepare(commit).await?,
            client,
            names: (0..holds).map(|n| format!("duty-{n}")).collect(),
        })
    }

    async fn keep_alive(&self) -> Result<Duration> {
        Ok(timed(async { Ok(self.client.execute(&self.keep_alive, &[&"me"]).await?) }).await?.0)
    }

    async fn claim(&self) -> Result<Duration> {
        Ok(timed(async { Ok(self.client.execute(&self.claim, &[&self.names]).await?) }).await?.0)
    }

    async fn commit(&self, round: usize) -> Result<Duration> {
        let (document, round) = (&DOCUMENT[..], round as i64);
        let parameters: [&(dyn ToSql + Sync); 3] = [&self.names, &document, &round];
        let call = self.client.execute(&self.commit, &parameters);
        Ok(timed(async { Ok(call.await?) }).await?.0)
    }
}

pub async fn run() -> Result<Vec<OperationRow>> {
    let url =
        testkit::service(testkit::TEST_POSTGRES).context("TENURE_TEST_POSTGRES is not set")?;
    let mut rows = Vec::new();
    for holds in SIZES {
        let raw = RawPostgres::new(&url, holds).await?;
        let schema = format!("bench_{}", std::process::id());
        let mut ours = Ours::new(&format!("{url}?schema={schema}"), holds).await?;
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
        rows.extend(table("postgres", holds, times, 2.0));
    }
    Ok(rows)
}
