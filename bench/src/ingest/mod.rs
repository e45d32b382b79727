//! `cargo xtask bench ingest`: durable ingestion of events by the switchboard, compared with the
//! cheapest ways to store the same rows, and with an echo of the same requests.
//!
//! Server, clients and database share the machine. Each round runs all measurements alternately;
//! the medians of the rounds are compared.

pub mod client;
mod events;
pub mod raw;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::{ServerHandle, ServerSettings, serve, storage};
use testkit::{TEST_POSTGRES, service};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use client::{RequestShape, paced, saturate};
use events::Bodies;

/// Repetitions of every measurement.
const MEASURED_ROUNDS: usize = 3;
/// Events that each raw way stores in a round.
const RAW: usize = 100_000;
/// Events of a round with one transaction each, which takes longer.
const RAW_SINGLE: usize = 20_000;

const BATCH: RequestShape = RequestShape {
    path: "/api/switchboard/ingest/batch",
    status: "202",
    connections: 8,
    size: 100,
};
const SINGLE: RequestShape =
    RequestShape { path: "/api/switchboard/ingest", status: "202", connections: 64, size: 1 };
const ECHO: RequestShape = RequestShape { path: "/api/switchboard/echo", status: "200", ..SINGLE };

/// Measures both stores, or the named ones.
pub fn run(wanted: &[String]) -> Result<()> {
    let is_wanted = |store: &str| wanted.is_empty() || wanted.iter().any(|word| word == store);
    let mut table = Table::default();
    println!("{HEADING}");
    if is_wanted("sqlite") {
        let folder = tempfile::tempdir()?;
        measure(&mut table, &IngestStores::sqlite(folder.path().join("tenure.db")))?;
    }
    if is_wanted("postgres") {
        let url = service(TEST_POSTGRES).context("run this with `cargo xtask bench ingest`")?;
        measure(&mut table, &IngestStores::postgres(url))?;
    }
    table.judge_all()
}

/// Stores of the measurement: one for Tenure, one for raw rows.
struct IngestStores {
    name: &'static str,
    ours: String,
    raw: String,
    /// URL and schema of the raw rows.
    postgres: Option<(String, String)>,
    file: PathBuf,
}

impl IngestStores {
    fn sqlite(file: PathBuf) -> Self {
        let raw = file.with_file_name("raw.db");
        Self {
            name: "SQLite",
            ours: format!("sqlite:{}", file.display()),
            raw: format!("sqlite:{}", raw.display()),
            postgres: None,
            file: raw,
        }
    }

    fn postgres(url: String) -> Self {
        let run = uuid::Uuid::new_v4().simple();
        let schema = format!("raw_{run}");
        Self {
            name: "PostgreSQL",
            ours: format!("{url}?schema=ours_{run}"),
            raw: format!("{url}?schema={schema}"),
            postgres: Some((url, schema)),
            file: PathBuf::new(),
        }
    }
}

fn measure(table: &mut Table, place: &IngestStores) -> Result<()> {
    let runtime = Runtime::new()?;
    let (server, at, stop) = runtime.block_on(start(place))?;
    let bodies = Arc::new(Bodies::default());
    let mut raw = RawIngest::new(&runtime, place)?;
    let mut seen = IngestRounds::default();
    for round in 1..=MEASURED_ROUNDS {
        eprintln!("{}: round {round} of {MEASURED_ROUNDS}", place.name);
        seen.batch.push(saturate(at, BATCH, &bodies)?);
        seen.raw.push(raw.many(&runtime, &bodies)?);
        seen.single.push(saturate(at, SINGLE, &bodies)?);
        seen.echo.push(saturate(at, ECHO, &bodies)?);
        seen.one_by_one.extend(raw.one_by_one(&runtime, &bodies)?);
        seen.paced.push(paced(at, SINGLE, &bodies, 1_000)?);
    }
    // This ends the server; its shutdown is not measured.
    drop(stop);
    runtime.block_on(server.finished());
    for line in table.add(place, seen) {
        println!("{line}");
    }
    Ok(())
}

async fn start(place: &IngestStores) -> Result<(ServerHandle, SocketAddr, oneshot::Sender<()>)> {
    for url in [&place.ours, &place.raw] {
        storage::open(&StoreUrl::parse(url)?, IfAbsent::Create).await?;
    }
    let storage = storage::open(&StoreUrl::parse(&place.ours)?, IfAbsent::Refuse).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let settings = ServerSettings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        echo: true,
        ..ServerSettings::default()
    };
    let over = Box::pin(async { drop(stopped.await) });
    let handle =
        serve(settings, storage, over).await.map_err(|error| anyhow::anyhow!("{error}"))?;
    let at = handle.address();
    Ok((handle, at, stop))
}

/// Raw ways to store rows, and their stores.
struct RawIngest<'a> {
    place: &'a IngestStores,
    client: Option<tokio_postgres::Client>,
    position: i64,
}

impl<'a> RawIngest<'a> {
    fn new(runtime: &Runtime, place: &'a IngestStores) -> Result<Self> {
        let connect =
            |(url, schema): &(String, String)| runtime.block_on(raw::connect(url, schema));
        let client = place.postgres.as_ref().map(connect).transpose()?;
        Ok(Self { place, client, position: 0 })
    }

    fn many(&mut self, runtime: &Runtime, bodies: &Bodies) -> Result<f64> {
        let events = bodies.events(RAW)?;
        match &mut self.client {
            Some(client) => runtime.block_on(raw::copy(client, &events, &mut self.position)),
            None => raw::insert(&self.place.file, &events, &mut self.position),
        }
    }

    fn one_by_one(&mut self, runtime: &Runtime, bodies: &Bodies) -> Result<Option<f64>> {
        let Some((url, schema)) = &self.place.postgres else { return Ok(None) };
        let events = bodies.events(RAW_SINGLE)?;
        let connections = SINGLE.connections;
        let rate = raw::one_by_one(url, schema, connections, events, &mut self.position);
        runtime.block_on(rate).map(Some)
    }
}

/// Results of the rounds.
#[derive(Default)]
struct IngestRounds {
    batch: Vec<f64>,
    raw: Vec<f64>,
    single: Vec<f64>,
    echo: Vec<f64>,
    one_by_one: Vec<f64>,
    paced: Vec<[Duration; 2]>,
}

/// Rows of the table, and the number of missed bars.
#[derive(Default)]
struct Table {
    missed: usize,
}

const HEADING: &str = "\
| store | what | events, durable | beside | ratio | bar |
|---|---|---:|---|---:|---:|";

impl Table {
    fn add(&mut self, place: &IngestStores, seen: IngestRounds) -> Vec<String> {
        let on_postgres = place.postgres.is_some();
        let (raw, bar) = match on_postgres {
            true => ("`COPY` into the same tables", 0.5),
            false => ("one prepared multi-row insert", 0.3),
        };
        let [batch, many, single, echo] =
            [seen.batch, seen.raw, seen.single, seen.echo].map(median);
        let mut lines = vec![
            self.line(place, "batch of 100, 8 connections", batch, (raw, many), bar),
            self.line(place, "single event, 64 connections", single, ("echo route", echo), 0.5),
        ];
        if on_postgres {
            let each = ("a transaction each", median(seen.one_by_one));
            lines.push(self.line(place, "single event, 64 connections", single, each, 1.5));
        }
        let [p50, p99] = [0, 1].map(|n| {
            let times = seen.paced.iter().map(|pair| pair[n].as_secs_f64() * 1e3);
            median(times.collect())
        });
        let verdict = self.judge(p99 < 25.0);
        let name = place.name;
        lines.push(format!(
            "| {name} | acknowledged at 1,000 events/s | p50 {p50:.1} ms, p99 {p99:.1} ms | - | - \
             | p99 < 25 ms {verdict} |"
        ));
        lines
    }

    fn line(
        &mut self,
        place: &IngestStores,
        what: &str,
        ours: f64,
        (than, raw): (&str, f64),
        bar: f64,
    ) -> String {
        let ratio = ours / raw;
        let verdict = self.judge(ratio >= bar);
        let name = place.name;
        format!(
            "| {name} | {what} | {ours:.0}/s | {than}: {raw:.0}/s | {ratio:.2} | {bar} {verdict} |"
        )
    }

    fn judge(&mut self, met: bool) -> &'static str {
        self.missed += usize::from(!met);
        if met { "met" } else { "**missed**" }
    }

    fn judge_all(&self) -> Result<()> {
        match self.missed {
            0 => Ok(()),
            missed => bail!("{missed} bars are missed"),
        }
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}
