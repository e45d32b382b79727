//! `cargo xtask bench heartbeat`: CPU cost of the heartbeats of ten thousand connectors for one
//! replica on PostgreSQL, compared with an echo of the same requests at the same rate; and response
//! times with a year of statistics. `small` is a trial run of a minute.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::{ServerSettings, serve, storage};
use testkit::{TEST_POSTGRES, service};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::ingest::client::LoadConnection;
use crate::ingest::raw::connect;

const BEAT: &str = "/api/switchboard/heartbeat";
const ECHO: &str = "/api/switchboard/echo";
/// Connections of the clients.
const CONNECTIONS: u32 = 16;
/// Largest share of a core for a replica.
const CORES: f64 = 0.25;
/// Limit for the 99th percentile of a page, in milliseconds.
const MAX_PAGE_MS: f64 = 50.0;

/// Ten pages in one response: measured, without a bar.
const WHOLE_LIST: &str = "/api/connectors?limit=10000";

/// Scale of the measurement.
#[derive(Clone, Copy)]
struct Size {
    connectors: u32,
    /// Heartbeats per second: each connector sends one every 30 seconds.
    rate: u32,
    measured: Duration,
    days: u32,
    hours: u32,
    requests: usize,
}

const FULL_SCALE: Size = Size {
    connectors: 10_000,
    rate: 333,
    measured: Duration::from_secs(60),
    days: 365,
    hours: 720,
    requests: 200,
};
const SMALL: Size = Size {
    connectors: 500,
    rate: 50,
    measured: Duration::from_secs(5),
    days: 20,
    hours: 48,
    requests: 20,
};

/// Runs all measurements and prints them.
pub async fn run(wanted: &[String]) -> Result<()> {
    let size = match wanted {
        [] => FULL_SCALE,
        [word] if word == "small" => SMALL,
        _ => bail!("usage: cargo xtask bench heartbeat [small]"),
    };
    let url = service(TEST_POSTGRES).context("run this with `cargo xtask bench heartbeat`")?;
    let schema = format!("beats_{}", Uuid::new_v4().simple());
    let store = format!("{url}?schema={schema}");
    storage::open(&StoreUrl::parse(&store)?, IfAbsent::Create).await?;
    let client = connect(&url, &schema).await?;
    let replica = Replica::start(&store).await?;
    let mut missed = beats(&replica, &client, size).await?;
    eprintln!("filling {} days of {} connectors", size.days, size.connectors);
    fill(&client, size).await?;
    missed += pages(&replica, size).await?;
    drop(replica);
    client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?;
    match missed {
        0 => Ok(()),
        missed => bail!("{missed} bars are missed"),
    }
}

/// Runs a switchboard as `tenure serve` does, with an echo, until its standard input closes.
pub async fn serve_until_alone(url: &str) -> Result<()> {
    let store = StoreUrl::parse(url)?;
    let storage = storage::open(&store, IfAbsent::Refuse).await?;
    let settings = ServerSettings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        echo: true,
        store: Some(store),
        ..ServerSettings::default()
    };
    let alone = Box::pin(async {
        let mut input = tokio::io::stdin();
        let _ = input.read(&mut [0]).await;
    });
    let handle =
        serve(settings, storage, alone).await.map_err(|error| anyhow::anyhow!("{error}"))?;
    println!("{}", handle.address());
    handle.finished().await;
    Ok(())
}

/// Separate process, so that its CPU time is not mixed with that of its clients.
struct Replica {
    child: Child,
    at: SocketAddr,
}

impl Replica {
    async fn start(store: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["replica", store])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().context("no output")?;
        let line = BufReader::new(output).lines().next_line().await?;
        let at = line.context("the replica did not start")?.parse()?;
        Ok(Self { child, at })
    }

    fn cpu(&self) -> Result<f64> {
        let id = self.child.id().context("the replica ended")?;
        Ok(CpuTimes::of(id)?.own)
    }
}

/// Seconds of CPU that a process used.
struct CpuTimes {
    parent: u32,
    own: f64,
    /// Used by its children that have ended.
    children: f64,
}

impl CpuTimes {
    fn of(id: u32) -> Result<Self> {
        Self::read(&Path::new("/proc").join(id.to_string()))
    }

    fn read(process: &Path) -> Result<Self> {
        let stat = std::fs::read_to_string(process.join("stat"))?;
        // The name, in brackets, may contain anything.
        let (_, rest) = stat.rsplit_once(')').context("a process without a name")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |place: usize| -> Result<f64> {
            Ok(fields.get(place).context("a short line in /proc")?.parse::<f64>()?)
        };
        // The kernel reports hundredths of a second, whatever its own ticks are.
        let seconds = |place: usize| Ok::<f64, anyhow::Error>(number(place)? / 100.0);
        Ok(Self {
            parent: number(1)? as u32,
            own: seconds(11)? + seconds(12)?,
            children: seconds(13)? + seconds(14)?,
        })
    }
}

/// Returns the CPU seconds of the server of a connection, over all its processes.
async fn server_cpu(client: &Client) -> Result<f64> {
    let backend: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    let server = CpuTimes::of(u32::try_from(backend)?)?.parent;
    let times = CpuTimes::of(server)?;
    let mut all = times.own + times.children;
    for entry in std::fs::read_dir("/proc")? {
        // Entries that are no process, and processes that have just ended, have no times.
        if let Ok(times) = CpuTimes::read(&entry?.path())
            && times.parent == server
        {
            all += times.own;
        }
    }
    Ok(all)
}

/// Result of sending at a steady rate: cores of the replica and of the server, latencies.
struct Steady {
    replica: f64,
    server: f64,
    took: Vec<Duration>,
}

fn percentile(took: &[Duration], percent: usize) -> f64 {
    took[(took.len() * percent / 100).min(took.len() - 1)].as_secs_f64() * 1e3
}

/// Measures and prints the heartbeats and their echo; returns the number of missed bars.
async fn beats(replica: &Replica, client: &Client, size: Size) -> Result<usize> {
    eprintln!("registering {} connectors", size.connectors);
    let start = Instant::now();
    let instances: Arc<Vec<Uuid>> =
        (0..size.connectors).map(|_| Uuid::new_v4()).collect::<Vec<_>>().into();
    let fast = Paced { size: Size { rate: 100_000, ..size }, path: BEAT, start };
    fast.send(replica.at, &instances, size.connectors).await?;
    println!("| what | replica | PostgreSQL | p50 | p99 | bar |");
    println!("|---|---:|---:|---:|---:|---|");
    let mut missed = 0;
    for (name, path) in [("echo", ECHO), ("heartbeats", BEAT)] {
        let count = size.rate * u32::try_from(size.measured.as_secs())?;
        let before = (replica.cpu()?, server_cpu(client).await?, Instant::now());
        let took = Paced { size, path, start }.send(replica.at, &instances, count).await?;
        let seconds = before.2.elapsed().as_secs_f64();
        let steady = Steady {
            replica: (replica.cpu()? - before.0) / seconds,
            server: (server_cpu(client).await? - before.1) / seconds,
            took,
        };
        let is_met = steady.replica < CORES;
        let bar = match (path, is_met) {
            (ECHO, _) => "-".to_owned(),
            (_, true) => format!("< {CORES} cores met"),
            (_, false) => format!("< {CORES} cores **missed**"),
        };
        missed += usize::from(path == BEAT && !is_met);
        println!(
            "| {name}, {}/s of {} connectors | {:.3} cores | {:.3} cores | {:.1} ms | {:.1} ms \
             | {bar} |",
            size.rate,
            size.connectors,
            steady.replica,
            steady.server,
            percentile(&steady.took, 50),
            percentile(&steady.took, 99),
        );
    }
    Ok(missed)
}

/// Requests at a steady rate, for each connector in turn.
#[derive(Clone, Copy)]
struct Paced {
    size: Size,
    path: &'static str,
    /// When the connectors started.
    start: Instant,
}

impl Paced {
    /// Returns the sorted latencies, each from the moment at which its request was due.
    async fn send(
        self,
        at: SocketAddr,
        instances: &Arc<Vec<Uuid>>,
        count: u32,
    ) -> Result<Vec<Duration>> {
        let began = Instant::now() + Duration::from_millis(100);
        let mut clients = JoinSet::new();
        for n in 0..CONNECTIONS {
            let instances = instances.clone();
            clients.spawn(async move {
                let mut connection = LoadConnection::open(at).await?;
                let mut took = Vec::new();
                for beat in (n..count).step_by(CONNECTIONS as usize) {
                    let due = began + Duration::from_secs(1) / self.size.rate * beat;
                    tokio::time::sleep_until(due.into()).await;
                    let connector = beat % self.size.connectors;
                    let uptime = self.start.elapsed().as_secs();
                    let body = envelope(connector, instances[connector as usize], uptime);
                    connection.post(self.path, body.as_bytes(), "200").await?;
                    took.push(due.elapsed());
                }
                anyhow::Ok(took)
            });
        }
        let mut all = Vec::new();
        while let Some(ended) = clients.join_next().await {
            all.extend(ended.context("a client panicked")??);
        }
        all.sort_unstable();
        Ok(all)
    }
}

fn envelope(connector: u32, instance: Uuid, uptime: u64) -> String {
    let done = uptime * 3;
    [
        r#"{"schema_version":"connector.heartbeat.v1","#,
        r#""connector":{"connector_type":"telegram_bot","#,
        &format!(r#""endpoint_identity":"bot-{connector:05}","instance_id":"{instance}","#),
        &format!(r#""version":"1.2.3"}},"status":{{"state":"healthy","uptime_s":{uptime}}},"#),
        &format!(r#""counters":{{"messages_ingested":{done},"messages_failed":{},"#, done / 100),
        &format!(r#""source_api_calls":{done},"checkpoint_saves":{done},"dedupe_accepted":0}},"#),
        &format!(r#""checkpoint":{{"cursor":"update {done}"}},"#),
        &format!(r#""sent_at":"{}"}}"#, jiff::Timestamp::now()),
    ]
    .concat()
}

/// Inserts a year of daily and a month of hourly statistics for all connectors.
async fn fill(client: &Client, size: Size) -> Result<()> {
    let measures = "100, 1, 120, 3, 2880, 2870, 10, 0";
    let sql = format!(
        "SET synchronous_commit = off;
        INSERT INTO connector_stats_daily
        SELECT r.connector_type, r.endpoint_identity, d.day, {measures}, 99.65
        FROM generate_series(1, {}) AS n
        CROSS JOIN LATERAL (SELECT (now() AT TIME ZONE 'UTC')::date - n AS day) AS d
        CROSS JOIN connector_registry r ON CONFLICT DO NOTHING;
        INSERT INTO connector_stats_hourly
        SELECT r.connector_type, r.endpoint_identity,
            date_trunc('hour', now(), 'UTC') - n * interval '1 hour', {measures}
        FROM generate_series(1, {}) AS n CROSS JOIN connector_registry r ON CONFLICT DO NOTHING;
        UPDATE connector_stats_window SET messages_ingested = messages_ingested + 700;",
        size.days, size.hours,
    );
    client.batch_execute(&sql).await?;
    // The server does this by itself after a while.
    client.batch_execute("VACUUM ANALYZE").await?;
    Ok(())
}

/// Measures pages one after another on one connection; returns the number of missed bars.
async fn pages(replica: &Replica, size: Size) -> Result<usize> {
    println!("\n| page | bytes | p50 | p99 | bar |\n|---|---:|---:|---:|---|");
    let mut connection = LoadConnection::open(replica.at).await?;
    let mut missed = 0;
    for page in [
        "/api/connectors",
        WHOLE_LIST,
        "/api/connectors/summary?period=24h",
        "/api/connectors/summary?period=7d",
        "/api/connectors/summary?period=30d",
    ] {
        let request = format!("GET {page} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
        let (mut took, mut bytes) = (Vec::new(), 0);
        for _ in 0..size.requests {
            let began = Instant::now();
            bytes = connection.exchange(request.as_bytes(), "200").await?;
            took.push(began.elapsed());
        }
        took.sort_unstable();
        let (p50, p99) = (percentile(&took, 50), percentile(&took, 99));
        let bar = match (page, p99 < MAX_PAGE_MS) {
            (WHOLE_LIST, _) => "-".to_owned(),
            (_, true) => format!("p99 < {MAX_PAGE_MS:.0} ms met"),
            (_, false) => format!("p99 < {MAX_PAGE_MS:.0} ms **missed**"),
        };
        missed += usize::from(bar.contains("missed"));
        println!("| {page} | {bytes} | {p50:.1} ms | {p99:.1} ms | {bar} |");
    }
    Ok(missed)
}
